-- The state of the tasks that were not claimed, in the order of the tickets.
select coalesce(t.id, 0) as id, coalesce(t.type, '') as type, coalesce(t.queue, '') as queue,
  coalesce(t.state, '') as state, coalesce(t.attempt, 0) as attempt, coalesce(t.worker_id, 0) as worker_id,
  coalesce(t.due_at > ?2 and t.next_run_at > ?2, 0) as waits,
  coalesce(t.crashes, 0) as crashes
from json_each(?1) as tickets left join tasks t on t.id = tickets.value ->> 0
order by tickets.key
