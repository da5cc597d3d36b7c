-- Tickets that are out and tasks that run are counted in their indexes.
with open as (
  select lane, 1 as ready, 1 as due, 0 as running, next_run_at from tasks where ticketed_at is not null
  union all
  select lane, 1, due_at <= ?1 or next_run_at <= ?1, 0, next_run_at from tasks where due_at is not null
  union all
  select lane, 0, 0, 1, null from tasks where run_id is not null
), counted as (
  select lane, sum(ready) as ready, sum(due) as due, sum(running) as running,
    min(iif(due, next_run_at, null)) as oldest
  from open
  group by lane
)
select l.name, coalesce(c.ready, 0) as ready, coalesce(c.due, 0) as due, coalesce(c.running, 0) as running,
  coalesce(max(?1 - c.oldest, 0), 0) as oldest, l.drained_through
from lanes l left join counted c on c.lane = l.name
order by l.name
