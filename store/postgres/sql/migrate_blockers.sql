-- The session with the oldest transaction among the other sessions that hold a lock on a table of the schema $1.
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
