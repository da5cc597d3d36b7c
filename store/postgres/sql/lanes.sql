with open as (
  select lane,
    count(*) filter (where state = 'ready') as ready,
    count(*) filter (where state = 'ready' and (due_at is null or due_at <= now() or next_run_at <= now())) as due,
    count(*) filter (where state = 'running') as running,
    min(next_run_at) filter (where state = 'ready' and (due_at is null or due_at <= now() or next_run_at <= now())) as oldest
  from holdfast.tasks
  where state in ('ready', 'running')
  group by lane
)
select l.name, coalesce(o.ready, 0) as ready, coalesce(o.due, 0) as due, coalesce(o.running, 0) as running,
  coalesce((extract(epoch from greatest(now() - o.oldest, interval '0')) * 1000000)::bigint, 0) as oldest,
  l.drained_through
from holdfast.lanes l left join open o on o.lane = l.name
order by l.name collate "C"
