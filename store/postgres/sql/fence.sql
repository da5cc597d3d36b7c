-- A run that is renewing or claiming at this moment is skipped; it is looked at again next time.
with over as (
  select id from holdfast.runs
  where state = 'live' and lease_until < now() - $1 * interval '1 microsecond'
    and now() - pg_postmaster_start_time() >= $2 * interval '1 microsecond'
    -- A statement that was under way while the server was frozen finds every lease over.
    and now() - $3::timestamptz < interval '2 seconds'
  order by id
  for update skip locked
)
update holdfast.runs r set state = 'dead', ended_at = now()
from over
where r.id = over.id
returning r.id
