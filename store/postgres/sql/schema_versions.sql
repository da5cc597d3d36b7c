-- Before the first release the table queues was called lanes.
select version_id as number, max(tstamp) as applied_at, to_regclass('holdfast.lanes') is not null as former_names
from holdfast.migrations
where is_applied and version_id > 0
group by version_id
order by version_id
