insert into cancellations (worker_id, task_id, attempt, created_at)
select t.worker_id, t.id, t.attempt, ?5 from tasks t where {{apply_unchanged}} and t.state = 'running'
