-- The parts of other statements.

-- {{columns}}: the columns of a task without its payload.
tasks.id, tasks.type, tasks.lane, tasks.state, coalesce(tasks.unique_key, '') as unique_key,
tasks.attempt, tasks.max_attempts, tasks.failures, tasks.crashes, tasks.deferrals, coalesce(tasks.run_id, 0) as run_id,
tasks.next_run_at, tasks.created_at, tasks.started_at, tasks.finished_at,
coalesce(tasks.last_error, '') as last_error, coalesce(tasks.parked, '') as parked,
coalesce(tasks.idempotency_key, '') as idempotency_key,
coalesce(tasks.buffered and tasks.state = 'running', 0) as buffered

-- {{payload}}: the payload of a task. A long one is in a table of its own.
coalesce(tasks.payload, (select p.payload from payloads p where p.task_id = tasks.id)) as payload

-- {{all_tasks}}: all tasks, from the newest down.
tasks not indexed where

-- {{dead_tasks}}: dead letters, which have an index.
tasks where tasks.dead_at is not null and

-- {{running_tasks}}: running tasks: few run at a time, and they have an index.
tasks indexed by tasks_run where tasks.run_id is not null and

-- {{filter}}: what list and count choose: states, type, lane, part of the last error, ids below one,
-- and from when to when a task ended, or was created if it has not ended.
(?1 = '[]' or tasks.state in (select value from json_each(?1)))
and (?2 = '' or tasks.type = ?2)
and (?3 = '' or tasks.lane = ?3)
and (?4 = '' or contains(tasks.last_error, ?4))
and (?5 = 0 or tasks.id < ?5)
and (?6 = 0 or coalesce(tasks.finished_at, tasks.created_at) >= ?6)
and (?7 = 0 or coalesce(tasks.finished_at, tasks.created_at) < ?7)

-- {{apply_stands}}: whether the task t stands where the judge saw it: ?1 is the task, ?2 the attempt, ?3 the run or 0, ?4 the
-- states as ",ready,running,".
t.id = ?1 and t.attempt = ?2 and coalesce(t.run_id, 0) = ?3 and instr(?4, ',' || t.state || ',') > 0

-- {{sentinels_due_which}}: ?1 is now, ?2 the interval, ?3 when one counts as lost. If a time lies in the future, the clock was set
-- back since.
(sentinel_sent_at is null
  or sentinel_sent_at <= ?1 - ?2 and (drained_through >= sentinel_sent_at or sentinel_sent_at <= ?1 - ?3)
  or max(coalesce(sentinel_sent_at, 0), coalesce(drained_through, 0), coalesce(drained_at, 0), coalesce(held_through, 0), coalesce(held_at, 0),
    coalesce(proved_through, 0))
    > ?1 + 2000000)

-- {{lane_ahead}}: whether a time of the lane's sentinels lies after ?1.
max(coalesce(drained_through, 0), coalesce(drained_at, 0), coalesce(held_through, 0), coalesce(held_at, 0), coalesce(proved_through, 0))
  > ?1 + 2000000
