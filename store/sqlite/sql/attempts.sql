-- A row without an attempt says that the task exists.
select t.id as task, coalesce(a.attempt, 0) as attempt, coalesce(a.event, '') as event,
  coalesce(a.run_id, 0) as run, coalesce(a.worker, '') as worker,
  a.started_at, a.finished_at,
  coalesce(a.class, '') as class, coalesce(a.error, '') as error, coalesce(a.stack, '') as stack,
  coalesce(a.details, '') as details
from tasks t left join attempts a on a.task_id = t.id
where t.id = ?1
order by a.attempt, a.finished_at
