with old as (
  select created_at from holdfast.outbox where created_at < now() - $1 * interval '1 microsecond'
)
select count(*) as entries,
  coalesce((extract(epoch from now() - min(created_at)) * 1000000)::bigint, 0) as oldest,
  coalesce((select (extract(epoch from greatest(now() - max(taken_at), interval '0')) * 1000000)::bigint from holdfast.turns having count(*) > 0), -1) as turned,
  (select value::timestamptz from holdfast.meta where key = 'setback') as setback
from old
