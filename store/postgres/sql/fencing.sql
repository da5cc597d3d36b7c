-- name: now
select now() as now

-- name: fence
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

-- name: abandoned_workers
-- The ended workers that may still own tasks.
select id from holdfast.workers where state <> 'live' and not swept and ($1::bigint = 0 or id = $1)

-- name: abandoned
-- One step over the ids above $1 up to $2. There is no index of running tasks, because every claim would have to update
-- it.
select {{columns}}
from holdfast.tasks t
where t.id > $1 and t.id <= $2 and t.state = 'running' and ($4::bigint = 0 or t.worker_id = $4)
  and not exists (select from holdfast.workers w where w.id = t.worker_id and w.state = 'live')
order by t.id
limit $3

-- name: abandoned_swept
-- These workers have ended and own no tasks. A worker that has ended claims no tasks, so it will own none later.
update holdfast.workers set swept = true where id = any($1::bigint[]) and state <> 'live'
