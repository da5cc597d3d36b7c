select t.id is not null as found, coalesce(t.state, '') as state, coalesce(t.attempt, 0) as attempt,
  coalesce(t.run_id, 0) as run, coalesce(r.state, '') as run_state, t.ticketed_at is not null as ticketed
from json_each(?1) as asked left join tasks t on t.id = asked.value left join runs r on r.id = t.run_id
order by asked.key
