-- The columns of a task without its payload, for {{columns}} in the other files.
tasks.id, tasks.type, tasks.lane, tasks.state, coalesce(tasks.unique_key, '') as unique_key,
tasks.attempt, tasks.max_attempts, tasks.failures, tasks.crashes, tasks.deferrals, coalesce(tasks.run_id, 0) as run_id,
tasks.next_run_at, tasks.created_at, tasks.started_at, tasks.finished_at,
coalesce(tasks.last_error, '') as last_error, coalesce(tasks.parked, '') as parked,
coalesce(tasks.idempotency_key, '') as idempotency_key,
coalesce(tasks.buffered and tasks.state = 'running', 0) as buffered
