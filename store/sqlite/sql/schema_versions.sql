select version_id as number, unixepoch(max(tstamp)) as applied_at
from migrations
where is_applied and version_id > 0
group by version_id
order by version_id
