-- Applies plain successes, which are nearly all results. ?1 lists [task, attempt, worker], and ?2 is now.
update tasks
set state = 'done', worker_id = null, finished_at = ?2
from json_each(?1) as m
where tasks.id = m.value ->> 0 and tasks.attempt = m.value ->> 1 and +tasks.worker_id = m.value ->> 2 and tasks.state = 'running'
returning tasks.id
