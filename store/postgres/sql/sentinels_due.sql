-- If a time lies in the future, the clock has been set back. Such times prove nothing and would delay the next
-- sentinels.
with picked as (
  select name,
    coalesce(greatest(drained_through, drained_at, held_through, held_at, proved_through) > now() + interval '2 seconds', false) as ahead
  from holdfast.queues
  where sentinel_sent_at is null
    or sentinel_sent_at <= now() - $1 * interval '1 microsecond'
      and (drained_through >= sentinel_sent_at or sentinel_sent_at <= now() - $2 * interval '1 microsecond')
    or greatest(sentinel_sent_at, drained_through, drained_at, held_through, held_at, proved_through) > now() + interval '2 seconds'
  order by name
  for update skip locked
)
update holdfast.queues q set sentinel_sent_at = now(),
  drained_through = case when not p.ahead then q.drained_through end, drained_at = case when not p.ahead then q.drained_at end,
  held_through = case when not p.ahead then q.held_through end, held_at = case when not p.ahead then q.held_at end,
  proved_through = case when not p.ahead then q.proved_through end
from picked p
where q.name = p.name
returning q.name as queue, q.sentinel_sent_at as at
