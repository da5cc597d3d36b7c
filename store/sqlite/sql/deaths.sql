-- name: deaths_missing
-- The dead tasks without a record, with their last attempt. Its outcome may be another one than a death if the task was
-- restored.
select t.id as task, t.dead_at as died_at, t.type, t.queue, coalesce(a.class, '') as class,
  coalesce(a.error, t.last_error, '') as error, coalesce(a.stack, '') as stack, coalesce(a.details, '') as details
from tasks t left join attempts a on a.rowid = (
  select rowid from attempts where task_id = t.id order by attempt desc, finished_at desc limit 1
)
where t.dead_at is not null and not exists (select 1 from deaths d where d.task_id = t.id)
order by t.id
limit ?1
