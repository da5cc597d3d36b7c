-- ?1 lists [task, attempt] and ?2 lists the wanted types. ?3 is the worker and ?4 is now. ?5 has how many crashes each
-- type allows. ?6 is 1 if the tasks may wait in a buffer.
update tasks
set state = 'running', worker_id = ?3, started_at = ?4, due_at = null, ticketed_at = null, parked = null, buffered = nullif(?6, 0)
from json_each(?1) as tickets
where tasks.id = tickets.value ->> 0 and tasks.attempt = tickets.value ->> 1 and tasks.state = 'ready'
  and tasks.type in (select value from json_each(?2))
  and (tasks.crashes = 0 or tasks.crashes <= (select k.value from json_each(?5) as k where k.key = tasks.type))
  -- The task may run now. A due_at later than next_run_at only postpones the next try to publish.
  and (tasks.due_at is null or tasks.due_at <= ?4 or tasks.next_run_at <= ?4)
returning {{columns}}, {{payload}}
