select task_id as task, attempt, event, worker, coalesce(started_at, 0) as started_at, finished_at, class, error,
  coalesce(stack, '') as stack, coalesce(details, '') as details
from attempts
where task_id > ?1 and task_id <= ?2
order by task_id, attempt, finished_at
