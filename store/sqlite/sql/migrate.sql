-- name: quick_check
select quick_check as problem from pragma_quick_check

-- name: write_ahead
-- With write-ahead logging, statements that read never wait for a transaction that writes.
pragma journal_mode = wal

-- name: schema_owner
-- The application id of the file, whether the file has a table of migrations, and the first other table.
select (select application_id from pragma_application_id) as application,
  exists (select 1 from sqlite_schema where name = 'migrations') as migrated,
  coalesce((select name from sqlite_schema where type = 'table' and name <> 'migrations' and name not like 'sqlite_%' order by name limit 1), '') as "table"

-- name: schema_versions
-- Before the first release, the name of the table queues was lanes.
select version_id as number, unixepoch(max(tstamp)) as applied_at,
  exists (select 1 from sqlite_schema where name = 'lanes') as former_names
from migrations
where is_applied and version_id > 0
group by version_id
order by version_id
