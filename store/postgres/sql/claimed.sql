-- What a claim returns of a task t, for {{claimed}} in the other files. Null stands for what nearly always is so: on the way
-- it costs nothing, and this is done for every task. Times travel in binary form: their text takes longer to read than
-- all the rest of the row.
t.id, t.type, t.lane, t.unique_key, t.attempt, t.max_attempts, nullif(t.failures, 0), nullif(t.crashes, 0), nullif(t.deferrals, 0),
timestamptz_send(t.created_at), timestamptz_send(nullif(t.next_run_at, t.created_at)), timestamptz_send(t.started_at),
t.last_error, t.idempotency_key, t.payload
