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

-- {{audit_entries}}: all entries of the audit log.
where $1::bigint = 0 and $9 = '' and

-- {{audit_entries_of_task}}: the entries of the task $1.
where task_id = $1::bigint and ($9 = '' or subject = $9) and

-- {{audit_entries_of_operation}}: the entries of the operation $2.
where operation_id = $2::bigint and $1::bigint = 0 and ($9 = '' or subject = $9) and

-- {{audit_entries_of_subject}}: the entries of the subject $9.
where subject = $9 and subject <> '' and $1::bigint = 0 and

-- {{groups}}: all groups.
where $3 = ''

-- {{one_group}}: the group $3.
where fingerprint = $3
