-- ?5 is now, ?6 the new state, and ?7 the time at which the task is due if the new state is ready.
update tasks as t
set state = ?6, worker_id = null, attempt = ?8,
  failures = ?9, crashes = ?10, deferrals = ?11, max_attempts = ?12,
  next_run_at = iif(?6 = 'ready', ?7, t.next_run_at),
  due_at = iif(?6 = 'ready', ?7, null),
  finished_at = iif(?6 = 'ready', null, ?5),
  dead_at = iif(?6 = 'dead', ?5, null),
  last_error = coalesce(nullif(?13, ''), t.last_error),
  requeued = ?14,
  ticketed_at = null, parked = null
where {{apply_unchanged}}
