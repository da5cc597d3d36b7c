-- Before the first release the table queues was called lanes.
select version_id as number, unixepoch(max(tstamp)) as applied_at,
  exists (select 1 from sqlite_schema where name = 'lanes') as former_names
from migrations
where is_applied and version_id > 0
group by version_id
order by version_id
