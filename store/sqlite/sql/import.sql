-- No imported task has a ticket, so a ready task gets a due_at. The statement skips a task whose id or unique key is
-- taken.
insert into tasks (
  id, type, queue, state, payload, unique_key, attempt, max_attempts, failures, crashes, deferrals,
  next_run_at, created_at, started_at, finished_at, due_at, dead_at, requeued, last_error, parked, idempotency_key,
  park_count, park_attempt
)
values (
  ?1, ?2, ?3, ?4, ?5, nullif(?6, ''), ?7, ?8, ?9, ?10, ?11, ?12, ?13, nullif(?14, 0), nullif(?15, 0),
  iif(?4 = 'ready', ?12, null), iif(?4 = 'dead', ?15, null), ?16, nullif(?17, ''), nullif(?18, ''), nullif(?19, ''),
  nullif(?20, 0), iif(?20 > 0, ?7, null)
)
on conflict do nothing
