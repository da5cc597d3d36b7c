with open as (
  select queue,
    count(*) filter (where state = 'ready') as ready,
    count(*) filter (where state = 'ready' and (due_at is null or due_at <= now() or next_run_at <= now())) as due,
    count(*) filter (where state = 'running') as running,
    count(*) filter (where state = 'ready' and parked is not null) as parked,
    string_agg(distinct type collate "C", ' ' order by type collate "C") filter (where state = 'ready' and parked is not null) as parked_types,
    min(next_run_at) filter (where state = 'ready' and (due_at is null or due_at <= now() or next_run_at <= now())) as oldest
  from holdfast.tasks
  where state in ('ready', 'running')
  group by queue
), dead as (
  select queue, count(*) as n from holdfast.tasks where dead_at is not null group by queue
)
select q.name, coalesce(o.ready, 0) as ready, coalesce(o.due, 0) as due, coalesce(o.running, 0) as running,
  coalesce(d.n, 0) as dead, coalesce(o.parked, 0) as parked, coalesce(o.parked_types, '') as parked_types,
  coalesce((extract(epoch from greatest(now() - o.oldest, interval '0')) * 1000000)::bigint, 0) as oldest,
  q.drained_through
from holdfast.queues q left join open o on o.queue = q.name left join dead d on d.queue = q.name
order by q.name collate "C"
