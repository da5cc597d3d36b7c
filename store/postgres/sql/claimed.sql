-- What a claim returns of a task t, for {{claimed}} in the other files. Null stands for what nearly always is so: on the way
-- it costs nothing, and this is done for every task.
t.id, t.type, t.lane, t.unique_key, t.attempt, t.max_attempts, nullif(t.failures, 0), nullif(t.crashes, 0), nullif(t.deferrals, 0),
t.created_at, nullif(t.next_run_at, t.created_at), t.started_at, t.last_error, t.payload
