-- The short way for success, which is nearly all results. ?1 lists [task, attempt, run], ?2 is now.
update tasks
set state = 'done', run_id = null, finished_at = ?2
from json_each(?1) as m
where tasks.id = m.value ->> 0 and tasks.attempt = m.value ->> 1 and +tasks.run_id = m.value ->> 2 and tasks.state = 'running'
returning tasks.id
