-- name: unticket_find
-- One step over the queue ?1: at most ?6 tasks in the order of (ticketed_at, id), after (?2, ?3) and ticketed before
-- ?4. If ?5 is 1, only requeued tasks; if it is 0, only the others; if it is null, all of these. If ?7 is not empty,
-- only tasks of that type; otherwise, if ?5 is 1, no tasks whose tickets may wait in a type queue.
select id, ticketed_at as at from tasks
where queue = ?1 and ticketed_at is not null and (ticketed_at, id) > (?2, ?3) and ticketed_at < ?4
  and (?5 is null or requeued = ?5)
  and iif(?7 <> '', type = ?7, ?5 is not 1 or not exists (select 1 from queues y where y.name = tasks.queue || '/' || tasks.type))
order by ticketed_at, id
limit ?6

-- name: unticket_lost_queues
-- The times of the sentinels of each queue, the time of its oldest outbox entry, and whether a live worker reports that
-- all its executors are busy.
select q.name, q.drained_through, q.drained_at, coalesce(q.held_through, 0) as held_through, coalesce(q.held_at, 0) as held_at,
  coalesce(q.proved_through, 0) as proved_through,
  coalesce((select min(o.created_at) from outbox o where o.queue = q.name), 0) as uncertain,
  exists (select 1 from workers where state = 'live' and running >= concurrency) as "full"
from queues q
where q.drained_at is not null
order by q.name

-- name: unticket_lost_hold
-- Keeps the newest sentinel of the queues ?1. The sentinel that a queue kept before is a proof, or there is none. ?2 is
-- the slack.
update queues set proved_through = iif(drained_through >= held_at + ?2, held_through, proved_through),
  held_through = drained_through, held_at = drained_at
where name in (select value from json_each(?1))
