-- name: quick_check
select quick_check as problem from pragma_quick_check

-- name: write_ahead
-- With write-ahead logging, statements that read never wait for a transaction that writes.
pragma journal_mode = wal

-- name: page_size
select page_size as n from pragma_page_size

-- name: log_frames
-- Whether the checkpoint was blocked, the number of frames in the write-ahead log, and how many of them the database
-- file has, too. This checkpoint copies nothing and takes no lock.
pragma wal_checkpoint(noop)

-- name: save_log
-- Copies the frames that no reader needs into the database file. The columns are those of log_frames.
pragma wal_checkpoint(passive)

-- name: schema_owner
-- The application id of the file, whether the file has a table of migrations, and the first other table.
select (select application_id from pragma_application_id) as application,
  exists (select 1 from sqlite_schema where name = 'migrations') as migrated,
  coalesce((select name from sqlite_schema where type = 'table' and name <> 'migrations' and name not like 'sqlite_%' order by name limit 1), '') as "table"

-- name: schema_versions
select version_id as number, unixepoch(max(tstamp)) as applied_at
from migrations
where is_applied and version_id > 0
group by version_id
order by version_id
