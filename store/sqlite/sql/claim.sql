-- ?1 lists [task, attempt], ?2 the types, ?3 is the run and ?4 now. ?5 has by type how many crashes a task may have had. ?6 says whether they may wait.
update tasks
set state = 'running', run_id = ?3, started_at = ?4, due_at = null, ticketed_at = null, parked = null, buffered = nullif(?6, 0)
from json_each(?1) as asked
where tasks.id = asked.value ->> 0 and tasks.attempt = asked.value ->> 1 and tasks.state = 'ready'
  and tasks.type in (select value from json_each(?2))
  and (tasks.crashes = 0 or tasks.crashes <= (select k.value from json_each(?5) as k where k.key = tasks.type))
  -- Its time has come. A due_at that is later then only postpones the next try to publish.
  and (tasks.due_at is null or tasks.due_at <= ?4 or tasks.next_run_at <= ?4)
returning {{columns}}, {{payload}}
