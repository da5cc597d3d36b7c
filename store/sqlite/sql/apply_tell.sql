insert into cancellations (run_id, task_id, attempt, created_at)
select t.run_id, t.id, t.attempt, ?5 from tasks t where {{apply_stands}} and t.state = 'running'
