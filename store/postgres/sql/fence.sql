-- The statement skips a run that is renewing or claiming now; the next call sees it again. If the newest renewal of a
-- run lies in the future, the clock was set back since. The run gets a whole lease from now, in which a living worker
-- renews.
with looked_at as (
  select id, renewed_at > clock_timestamp() + interval '2 seconds' as ahead from holdfast.runs
  where state = 'live' and (
    renewed_at > clock_timestamp() + interval '2 seconds'
    or lease_until < now() - $1 * interval '1 microsecond'
      and (now() - pg_postmaster_start_time() >= $2 * interval '1 microsecond'
        -- It was started before the clock was set back. Leases that were renewed until then are whole ones from then on.
        or pg_postmaster_start_time() > now() + interval '2 seconds')
      -- A statement that was in progress while the server was frozen finds every lease expired.
      and now() - $3::timestamptz < interval '2 seconds'
  )
  order by id
  for update skip locked
), corrected as (
  update holdfast.runs r set renewed_at = clock_timestamp(), lease_until = clock_timestamp() + (r.lease_until - r.renewed_at)
  from looked_at l
  where r.id = l.id and l.ahead
)
update holdfast.runs r set state = 'dead', ended_at = now()
from looked_at l
where r.id = l.id and not l.ahead
returning r.id
