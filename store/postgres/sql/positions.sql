select t.id is not null as found, coalesce(t.state, '') as state, coalesce(t.attempt, 0) as attempt,
  coalesce(t.run_id, 0) as run, coalesce(r.state, '') as run_state,
  coalesce(t.state = 'ready' and t.due_at is null, false) as ticketed
from unnest($1::bigint[]) with ordinality as asked (task, n)
left join holdfast.tasks t on t.id = asked.task
left join holdfast.runs r on r.id = t.run_id
order by n
