-- These workers have ended and own no tasks. A worker that has ended claims none, so they will own none later.
update holdfast.workers set swept = true where id = any($1::bigint[]) and state <> 'live'
