-- The parts of statements that have one text for all adapters.

-- {{operation}}: the columns of an operation.
id, version, state, action, query, filter::text as filter, coalesce(patch::text, '') as patch, actor, surface, reason, note,
rate, ramp::text as ramp, stop_above, step_timeout, unvalidated, max_tasks, total, changed, skipped, refused, succeeded, failed, judged,
step, step_succeeded, step_failed, cursor, scanned, accepted, created_at, started_at, finished_at, advanced_at, waiting_at

-- {{operations_wanted}}: the operations in the states $2, or in all, with ids below $3 if that is not 0.
({{none($2::text[])}} or state {{in($2::text[])}}) and ($3::bigint = 0 or id < $3)

-- {{operations_by_id}}: the operation $2.
id = $2

-- {{operations_active}}: the operations of which a janitor makes steps. They have an index.
state = 'running'
