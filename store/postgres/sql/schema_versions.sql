select version_id as number, max(tstamp) as applied_at
from holdfast.migrations
where is_applied and version_id > 0
group by version_id
order by version_id
