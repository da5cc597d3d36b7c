-- The times of the queues' sentinels, the time of the oldest outbox entry of each queue, and whether a live worker
-- reports that all its executors are busy.
select q.name, q.drained_through, q.drained_at, coalesce(q.held_through, 0) as held_through, coalesce(q.held_at, 0) as held_at,
  coalesce(q.proved_through, 0) as proved_through,
  coalesce((select min(o.created_at) from outbox o where o.queue = q.name), 0) as uncertain,
  exists (select 1 from workers where state = 'live' and running >= concurrency) as "full"
from queues q
where q.drained_at is not null
order by q.name
