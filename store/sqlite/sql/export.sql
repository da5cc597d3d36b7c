-- Every task with its attempts. The details of an attempt are text, which keeps every character of the JSON.
select {{columns}}, {{payload}}, tasks.requeued,
  coalesce(iif(tasks.park_attempt = tasks.attempt, tasks.park_count, 0), 0) as parks, (
    select json_group_array(json_object(
      'task', a.task_id, 'attempt', a.attempt, 'event', a.event, 'worker_name', a.worker_name, 'started_at', a.started_at,
      'finished_at', a.finished_at, 'class', a.class, 'error', a.error, 'stack', a.stack, 'details', a.details
    ) order by a.attempt, a.finished_at, a.event)
    from attempts a where a.task_id = tasks.id
  ) as attempts
from tasks
order by tasks.id
