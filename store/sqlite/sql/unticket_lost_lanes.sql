-- What is known of the sentinels, since when a receipt may cover tasks of the lane, and whether a live run says that all its
-- executors are busy.
select l.name, l.drained_through, l.drained_at, coalesce(l.held_through, 0) as held_through, coalesce(l.held_at, 0) as held_at,
  coalesce(l.proved_through, 0) as proved_through,
  coalesce((select min(o.created_at) from outbox o where o.lane = l.name), 0) as uncertain,
  exists (select 1 from runs where state = 'live' and running >= concurrency) as "full"
from lanes l
where l.drained_at is not null
order by l.name
