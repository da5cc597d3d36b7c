-- The columns of a task t without its payload, for {{columns}} in the other files.
t.id, t.type, t.lane, t.state, coalesce(t.unique_key, '') as unique_key,
t.attempt, t.max_attempts, t.failures, t.crashes, t.deferrals, coalesce(t.run_id, 0) as run_id,
t.next_run_at, t.created_at, t.started_at, t.finished_at,
coalesce(t.last_error, '') as last_error, coalesce(t.parked, '') as parked, coalesce(t.idempotency_key, '') as idempotency_key,
coalesce(t.buffered and t.state = 'running', false) as buffered
