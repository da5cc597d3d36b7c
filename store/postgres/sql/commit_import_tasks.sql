-- None has a ticket, so those that are ready become due at their time. In the order of the ids, which is
-- the order in which most are looked at.
insert into holdfast.tasks (
  id, type, lane, state, payload, unique_key, attempt, max_attempts, failures, crashes, deferrals,
  next_run_at, created_at, started_at, finished_at, due_at, dead_at, again, last_error, parked
)
select id + $2, type, lane, state, payload, unique_key, attempt, max_attempts, failures, crashes, deferrals,
  next_run_at, created_at, started_at, finished_at,
  case when state = 'ready' then next_run_at end,
  case when state = 'dead' then coalesce(finished_at, now()) end,
  again, last_error, parked
from holdfast.import_tasks
where import_id = $1
order by id
