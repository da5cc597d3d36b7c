insert into attempts (task_id, attempt, event, worker_id, worker_name, started_at, finished_at, class, error, stack, details)
select t.id, t.attempt, ?5, t.worker_id, coalesce((select name from workers where id = t.worker_id), ''), t.started_at, ?6, ?7, ?8, nullif(?9, ''), nullif(?10, '')
from tasks t
where {{apply_unchanged}}
on conflict do nothing
