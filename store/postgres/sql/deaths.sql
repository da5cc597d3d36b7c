-- name: deaths_missing
-- The dead tasks without a record, with their last attempt. Its outcome may be another one than a death if the task was
-- restored.
select t.id as task, t.dead_at as died_at, t.type, t.queue, coalesce(a.class, '') as class,
  coalesce(a.error, t.last_error, '') as error, coalesce(a.stack, '') as stack, coalesce(a.details::text, '') as details
from (
  select id, dead_at, type, queue, last_error from holdfast.tasks
  where dead_at is not null and not exists (select from holdfast.deaths d where d.task_id = id)
  order by id
  limit $1
) t left join lateral (
  select class, error, stack, details from holdfast.attempts where task_id = t.id order by attempt desc, finished_at desc limit 1
) a on true
