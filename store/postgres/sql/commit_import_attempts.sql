insert into holdfast.attempts (task_id, attempt, event, worker, started_at, finished_at, class, error, stack, details)
select task_id + $2, attempt, event, worker, started_at, finished_at, class, error, stack, details
from holdfast.import_attempts
where import_id = $1
order by task_id
