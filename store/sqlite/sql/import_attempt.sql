insert into attempts (task_id, attempt, event, worker_name, started_at, finished_at, class, error, stack, details)
values (?1, ?2, ?3, ?4, nullif(?5, 0), ?6, ?7, ?8, nullif(?9, ''), nullif(?10, ''))
