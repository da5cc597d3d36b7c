-- The live workers that said they are present, and whose presence lock no session holds. The statement reads the locks
-- after the workers, once, and only if there is a present worker. Reading the locks blocks the server's lock tables.
with present as materialized (
  select id, renewed_at from holdfast.workers where state = 'live' and present
), held as materialized (
  {{presence_held}} and exists (select from present)
)
select id, renewed_at from present
where (id & 4294967295)::oid not in (select objid from held)
order by id
