-- The statement skips a worker that is renewing or claiming right now; the next call checks it. If the newest renewal
-- of a worker lies in the future, the clock has been set back. Such a worker gets a whole lease from now, in which a
-- live process renews it.
with candidates as (
  select id, renewed_at > clock_timestamp() + interval '2 seconds' as ahead from holdfast.workers
  where state = 'live' and (
    renewed_at > clock_timestamp() + interval '2 seconds'
    or lease_until < now() - $1 * interval '1 microsecond'
      and (now() - pg_postmaster_start_time() >= $2 * interval '1 microsecond'
        -- The server started before the clock was set back. The statement corrects leases that were renewed until then.
        or pg_postmaster_start_time() > now() + interval '2 seconds')
      -- After a freeze of the server, a statement that was in progress finds all leases expired.
      and now() - $3::timestamptz < interval '2 seconds'
  )
  order by id
  for update skip locked
), corrected as (
  update holdfast.workers w set renewed_at = clock_timestamp(), lease_until = clock_timestamp() + (w.lease_until - w.renewed_at)
  from candidates c
  where w.id = c.id and c.ahead
)
update holdfast.workers w set state = 'dead', ended_at = now()
from candidates c
where w.id = c.id and not c.ahead
returning w.id
