-- A task that waits for a later time has moved on. The wait grows with the task's age: a million of
-- a type that no worker knows would else go round for ever. ?2 is now and ?3 the wait.
update tasks as t
set due_at = ?2 + max(?3, min((?2 - t.created_at) / 5, 600000000)),
  next_run_at = ?2 + max(?3, min((?2 - t.created_at) / 5, 600000000)),
  ticketed_at = null, parked = ?4
from json_each(?1) as asked
where t.id = asked.value ->> 0 and t.attempt = asked.value ->> 1 and t.state = 'ready'
  and (t.due_at is null or t.due_at <= ?2 or t.next_run_at <= ?2)
