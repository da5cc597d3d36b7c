with picked as (
  select name from holdfast.lanes
  where sentinel_sent_at is null
    or sentinel_sent_at <= now() - $1 * interval '1 microsecond'
      and (drained_through >= sentinel_sent_at or sentinel_sent_at <= now() - $2 * interval '1 microsecond')
  order by name
  for update skip locked
)
update holdfast.lanes l set sentinel_sent_at = now()
from picked
where l.name = picked.name
returning l.name as lane, l.sentinel_sent_at as at
