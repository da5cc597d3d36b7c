-- Every task with its attempts. The details of an attempt are text, which keeps every character of the JSON.
select {{columns}}, t.payload, t.requeued,
  coalesce(case when t.park_attempt = t.attempt then t.park_count end, 0) as parks, coalesce((
    select json_agg(json_build_object(
      'task', a.task_id, 'attempt', a.attempt, 'event', a.event, 'worker_name', a.worker_name, 'started_at', a.started_at,
      'finished_at', a.finished_at, 'class', a.class, 'error', a.error, 'stack', a.stack, 'details', a.details::text
    ) order by a.attempt, a.finished_at, a.event collate "C")
    from holdfast.attempts a where a.task_id = t.id
  )::text, '') as attempts
from holdfast.tasks t
order by t.id
