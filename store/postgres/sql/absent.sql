-- The locks are read after the runs, once, and only if any run is shown: reading them stops the server's lock tables for
-- a moment.
with shown as materialized (
  select id, renewed_at from holdfast.runs where state = 'live' and shown
), held as materialized (
  {{signs_held}} and exists (select from shown)
)
select id, renewed_at from shown
where (id & 4294967295)::oid not in (select objid from held)
order by id
