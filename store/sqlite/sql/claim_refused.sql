-- Where the tasks stand that were asked for and not claimed, in the order of the tickets.
select coalesce(t.id, 0) as id, coalesce(t.type, '') as type, coalesce(t.lane, '') as lane,
  coalesce(t.state, '') as state, coalesce(t.attempt, 0) as attempt, coalesce(t.run_id, 0) as run_id,
  coalesce(t.due_at > ?2 and t.next_run_at > ?2, 0) as waits,
  coalesce(t.crashes, 0) as crashes
from json_each(?1) as asked left join tasks t on t.id = asked.value ->> 0
order by asked.key
