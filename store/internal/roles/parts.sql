-- The parts of statements that have one text for all adapters.

-- {{operation}}: the columns of an operation.
id, version, state, action, query, filter::text as filter, coalesce(patch::text, '') as patch, actor, surface,
reason, note, rate, ramp::text as ramp, stop_above, step_timeout, unvalidated, max_tasks, total, changed, skipped,
refused, succeeded, failed, judged, step, step_succeeded, step_failed, cursor, scanned, accepted,
created_at, started_at, finished_at, advanced_at, waiting_at

-- {{operations_wanted}}: the operations in the states $2, or in all, with ids below $3 if that is not 0.
({{none($2::text[])}} or state {{in($2::text[])}}) and ($3::bigint = 0 or id < $3)

-- {{operations_by_id}}: the operation $2.
id = $2

-- {{operations_active}}: the operations that janitors advance. They have an index.
state = 'running'

-- {{audit_entries}}: all entries of the audit log.
where $1::bigint = 0 and $9 = '' and

-- {{audit_entries_single}}: all entries but the changes of tasks that operations made.
where (operation_id is null or task_id is null) and $1::bigint = 0 and $9 = '' and

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

-- {{gate}}: the columns of a gate g.
g.id, g.kind, g.queue, g.type, g.key, g.target, g.actor, g.surface, g.reason, g.closed_at, g.until,
g.probe_at, coalesce(g.probe_wait, 0) as probe_wait,
case when g.kind = 'breaker' then g.concurrency else 0 end as probes

-- {{stored_gate}}: {{gate}} without the name of the table, which SQLite does not accept after returning.
id, kind, queue, type, key, target, actor, surface, reason, closed_at, until,
probe_at, coalesce(probe_wait, 0) as probe_wait, case when kind = 'breaker' then concurrency else 0 end as probes

-- {{limit}}: the columns of a gate g that limits use.
coalesce(g.rate_count, 0) as rate_count, coalesce(g.rate_per, 0) as rate_per, coalesce(g.concurrency, 0) as concurrency

-- {{stored_limit}}: {{limit}} for {{stored_gate}}.
coalesce(rate_count, 0) as rate_count, coalesce(rate_per, 0) as rate_per, coalesce(concurrency, 0) as concurrency

-- {{gate_order}}: sorts closed gates g, pauses first, because a paused task gets no permit.
g.kind <> 'pause', g.id

-- {{forgotten}}: whether the gate g is a breaker without use for $1 microseconds. It has no bucket, so no worker has
-- blocked a task at it.
g.kind = 'breaker' and g.probe_at < {{now}} - {{span((select $1::bigint))}}
  and not exists (select 1 from holdfast.buckets b where b.gate_id = g.id)

-- {{pauses_queue}}: whether the gate g is a closed pause of all tasks in a queue.
g.lifted_at is null and (g.until is null or g.until > {{now}}) and g.kind = 'pause'
  and g.queue <> '' and g.type = '' and g.key = '' and g.target = ''

-- {{counted}}: store.MaxCountedBlocked.
100000

-- {{plan}}: the columns of a plan.
{{plan_without_spec}}, spec::text as spec

-- {{plan_without_spec}}: the columns of a plan, except the spec.
id, kind, name, state, version, next_at, progress::text as progress, actor, surface, reason, created_at, ended_at,
failures, coalesce(failure, '') as failure

-- {{not_counted}}: whether a task is no member of a batch that has not ended. Such a batch counts its tasks.
(plan is null or not exists (
  select 1 from holdfast.plans p where p.id = plan and p.kind = 'batch' and p.ended_at is null
))

-- {{plans_in_states}}: the plans in the states $2, or all if there are none.
({{none($2::text[])}} or state {{in($2::text[])}})

-- {{plans_with_ids}}: the plans with the ids $4, or all if there are none.
({{none($4::bigint[])}} or id {{in($4::bigint[])}})

-- {{plans_by_id}}: {{plans_with_ids}} for some ids, so that the engine looks them up.
id {{in($4::bigint[])}}

-- {{plan_item}}: the columns of an item.
item, state, next_at, data::text as data

-- {{minute}}: the beginning of the present minute.
{{at({{micros({{now}})}} / 60000000 * 60000000)}}
