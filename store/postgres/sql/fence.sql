-- A run that is renewing or claiming at this moment is skipped; it is looked at again next time. A run whose newest renewal lies in
-- the future is from a clock that was set back since. It gets a whole lease from now, in which a living worker renews.
with looked_at as (
  select id, renewed_at > clock_timestamp() + interval '2 seconds' as ahead from holdfast.runs
  where state = 'live' and (
    renewed_at > clock_timestamp() + interval '2 seconds'
    or lease_until < now() - $1 * interval '1 microsecond'
      and (now() - pg_postmaster_start_time() >= $2 * interval '1 microsecond'
        -- It was started before the clock was set back. Leases that were renewed until then are whole ones from then on.
        or pg_postmaster_start_time() > now() + interval '2 seconds')
      -- A statement that was under way while the server was frozen finds every lease over.
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
