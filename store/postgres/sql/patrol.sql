-- name: positions
select t.id is not null as found, coalesce(t.state, '') as state, coalesce(t.attempt, 0) as attempt,
  coalesce(t.worker_id, 0) as worker, coalesce(w.state, '') as worker_state,
  coalesce(t.state = 'ready' and t.due_at is null, false) as ticketed
from unnest($1::bigint[]) with ordinality as tickets (task, n)
left join holdfast.tasks t on t.id = tickets.task
left join holdfast.workers w on w.id = t.worker_id
order by n

-- name: tasks_by_id
select {{listed}} from holdfast.tasks t where t.id = any($1::bigint[])
