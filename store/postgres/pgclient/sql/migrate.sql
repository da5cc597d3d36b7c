-- name: schema_versions
select version_id as number, max(tstamp) as applied_at
from holdfast.migrations
where is_applied and version_id > 0
group by version_id
order by version_id

-- name: schema_drop
drop schema if exists {{schema}} cascade

-- name: schema_state
-- Whether the schema $1 exists, and the statement that permits this user to create it.
select exists (select from pg_namespace where nspname = $1) as present,
  format('grant create on database %I to %I', current_database(), current_user) as "grant"

-- name: schema_create
create schema if not exists {{schema}}

-- name: migrate_lock
select pg_try_advisory_xact_lock($1) as locked

-- name: migrate_blockers
-- The session with the oldest transaction among the other sessions with a lock on a table of the schema $1.
select l.pid, coalesce(a.application_name, '') as application,
  coalesce(extract(epoch from now() - a.xact_start), 0)::bigint as seconds
from pg_locks l
join pg_class c on c.oid = l.relation
join pg_namespace n on n.oid = c.relnamespace
left join pg_stat_activity a on a.pid = l.pid
where l.granted and n.nspname = $1 and l.pid <> pg_backend_pid()
  and l.database = (select oid from pg_database where datname = current_database())
order by a.xact_start nulls last, l.pid
limit 1
