-- Like fence.sql, for one worker. The worker must still be missing, and must not have renewed since the caller found it
-- missing.
with missing as (
  select id from holdfast.workers
  where id = $1 and state = 'live' and present and renewed_at = $2::timestamptz
    and now() - pg_postmaster_start_time() >= $3 * interval '1 microsecond'
    and now() - $4::timestamptz < interval '2 seconds'
  for update skip locked
)
update holdfast.workers w set state = 'dead', ended_at = now()
from missing
where w.id = missing.id and (missing.id & 4294967295)::oid not in ({{presence_held}})
returning w.id
