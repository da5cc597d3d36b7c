-- A task without attempts has one row, with attempt 0.
select t.id as task, coalesce(a.attempt, 0) as attempt, coalesce(a.event, '') as event,
  coalesce(a.worker_id, 0) as worker, coalesce(a.worker_name, '') as worker_name, a.started_at, a.finished_at,
  coalesce(a.class, '') as class, coalesce(a.error, '') as error, coalesce(a.stack, '') as stack,
  coalesce(a.details::text, '') as details
from holdfast.tasks t left join holdfast.attempts a on a.task_id = t.id
where t.id = $1
order by a.attempt, a.finished_at
