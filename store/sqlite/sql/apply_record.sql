insert into attempts (task_id, attempt, event, run_id, worker, started_at, finished_at, class, error, stack, details)
select t.id, t.attempt, ?5, t.run_id, coalesce((select name from runs where id = t.run_id), ''), t.started_at, ?6, ?7, ?8, nullif(?9, ''), nullif(?10, '')
from tasks t
where {{apply_stands}}
on conflict do nothing
