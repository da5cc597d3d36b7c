-- name: operation_create
insert into holdfast.operations (
  state, action, query, filter, patch, actor, surface, reason, rate, ramp, stop_above, step_timeout, total, max_tasks,
  unvalidated, created_at, started_at, advanced_at
)
values (
  $1, $2, $3, $4::json, nullif($5, '')::json, $6, $7, $8, $9, $10::json, $11, $12, $13, $14, $15,
  {{now}}, case when $1 = 'running' then {{now}} end, {{now}}
)
returning id

-- name: operations
-- At most $1 operations.
select {{operation}}
from holdfast.operations
where {{operations_wanted}}
order by id desc
limit $1

-- name: operation_lock
-- Takes the next version. Until this transaction ends, no other step can take one.
update holdfast.operations set version = version + 1 where id = $1 and version = $2

-- name: operation_step
update holdfast.operations set
  state = $2, note = $3, changed = changed + $4, skipped = skipped + $5, refused = $6,
  succeeded = $7, failed = $8, judged = $9, step = $10, step_succeeded = $11, step_failed = $12,
  cursor = $13, scanned = $14, accepted = $17,
  advanced_at = nullif({{at($15)}}, {{epoch}}),
  waiting_at = nullif({{at($16)}}, {{epoch}}),
  started_at = case when $2 = 'running' then coalesce(started_at, {{now}}) else started_at end,
  finished_at = case when $2 in ('done', 'cancelled') then coalesce(finished_at, {{now}}) end,
  unannounced_at = case when $2 = 'stopped' and state <> 'stopped' then {{now}} else unannounced_at end
where id = $1

-- name: operation_watch
insert into holdfast.operation_tasks (operation_id, task_id)
select $1, w.id from {{list(w.id, $2::bigint[])}} where true
on conflict do nothing

-- name: operation_judged
delete from holdfast.operation_tasks where operation_id = $1 and task_id {{in($2::bigint[])}}

-- name: operation_forget
delete from holdfast.operation_tasks where operation_id = $1

-- name: first_attempts
-- A retry sets the counters to zero, so they count only later attempts. If a task is gone and its last audit entry is
-- neither a purge nor an undo, it was pruned. That happens only some time after a success.
select w.task_id as task, case
    when (
      select action from holdfast.audit a where a.task_id = w.task_id order by a.id desc limit 1
    ) in ('purge', 'undo') then 'other'
    when t.id is null or t.state = 'done' and t.failures = 0 and t.crashes = 0 then 'succeeded'
    when t.failures > 0 or t.crashes > 0 or t.state = 'dead' then 'failed'
    else 'other'
  end as result
from holdfast.operation_tasks w left join holdfast.tasks t on t.id = w.task_id
where w.operation_id = $1 and (t.id is null or t.state not in ('ready', 'running') or t.failures > 0 or t.crashes > 0)
order by w.task_id desc
limit $2
