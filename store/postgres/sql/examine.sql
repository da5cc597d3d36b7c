-- name: settings_replicas
-- For a user without the right to see the state of the replicas, the counts are 0.
select pg_is_in_recovery() as standby,
  (select count(*) from pg_stat_replication where sync_state = any($1::text[])) as following,
  (select count(*) from pg_stat_replication where sync_state = any($2::text[])) as waited_for

-- name: settings_rights
-- The missing rights of the user in the schema $1: the right to use the schema, and the names of the tables and
-- sequences on which a right is missing. The tables of Holdfast have the same owner as the table migrations, which
-- needs only the right to read.
with owned as (
  select c.oid, c.relname, c.relkind from pg_class c
  join pg_class v on v.relnamespace = c.relnamespace and v.relname = 'migrations' and v.relowner = c.relowner
  join pg_namespace n on n.oid = c.relnamespace
  where n.nspname = $1
)
select current_user::text as role, not has_schema_privilege(n.oid, 'usage') as "schema",
  array(select relname from owned where relkind = 'r'
    and not (has_table_privilege(oid, 'select') and (relname = 'migrations' or has_table_privilege(oid, 'insert')
      and has_table_privilege(oid, 'update') and has_table_privilege(oid, 'delete')))
    order by relname)::text[] as tables,
  array(select relname from owned where relkind = 'S'
    and not (has_sequence_privilege(oid, 'usage') and has_sequence_privilege(oid, 'update'))
    order by relname)::text[] as sequences
from pg_namespace n where n.nspname = $1

-- name: janitors
with old as (
  select created_at from holdfast.outbox where created_at < now() - $1 * interval '1 microsecond'
)
select count(*) as outbox_entries,
  coalesce((extract(epoch from now() - min(created_at)) * 1000000)::bigint, 0) as oldest,
  coalesce((select (extract(epoch from greatest(now() - max(taken_at), interval '0')) * 1000000)::bigint from holdfast.turns having count(*) > 0), -1) as last_turn,
  (select value::timestamptz from holdfast.meta where key = 'setback') as lost_commits
from old

-- name: failing_duties
select janitor, duty, error, (extract(epoch from greatest(now() - since, interval '0')) * 1000000)::bigint as "for"
from holdfast.failing_duties
where valid_until > now()
order by since, janitor, duty
limit 100
