-- Each part of the union reads a partial index.
with open as (
  select queue, 1 as ready, 1 as due, 0 as running, 0 as dead, parked, type, next_run_at from tasks where ticketed_at is not null
  union all
  select queue, 1, due_at <= ?1 or next_run_at <= ?1, 0, 0, parked, type, next_run_at from tasks where due_at is not null
  union all
  select queue, 0, 0, 1, 0, null, null, null from tasks where worker_id is not null
  union all
  select queue, 0, 0, 0, 1, null, null, null from tasks where dead_at is not null
), counted as (
  select queue, sum(ready) as ready, sum(due) as due, sum(running) as running, sum(dead) as dead, count(parked) as parked,
    group_concat(distinct iif(parked is null, null, type)) as parked_types, min(iif(due, next_run_at, null)) as oldest
  from open
  group by queue
)
select q.name, coalesce(c.ready, 0) as ready, coalesce(c.due, 0) as due, coalesce(c.running, 0) as running,
  coalesce(c.dead, 0) as dead, coalesce(c.parked, 0) as parked, replace(coalesce(c.parked_types, ''), ',', ' ') as parked_types,
  coalesce(max(?1 - c.oldest, 0), 0) as oldest, q.drained_through
from queues q left join counted c on c.queue = q.name
order by q.name
