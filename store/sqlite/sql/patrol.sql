-- name: positions
select t.id is not null as found, coalesce(t.state, '') as state, coalesce(t.attempt, 0) as attempt,
  coalesce(t.worker_id, 0) as worker, coalesce(w.state, '') as worker_state, t.ticketed_at is not null as ticketed
from json_each(?1) as tickets left join tasks t on t.id = tickets.value left join workers w on w.id = t.worker_id
order by tickets.key

-- name: tasks_by_id
select {{listed}} from tasks where tasks.id in (select value from json_each(?1))
