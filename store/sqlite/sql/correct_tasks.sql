-- One step over the ids above ?2 up to ?3. ?1 is now. The statement corrects ready tasks whose times the store computed
-- before the clock was set back. It corrects next_run_at only if the intended wait is certain. A park lasts at most ten
-- minutes. The wait of a retry began at the time in the record of the last attempt. A task whose attempt was
-- interrupted waits for two minutes at most. A task without a delay does not wait.
update tasks as t set
  due_at = iif(t.due_at is null, null, c.next_run_at),
  next_run_at = c.next_run_at,
  ticketed_at = iif(t.ticketed_at > ?1, ?1, t.ticketed_at),
  started_at = iif(t.started_at > ?1, ?1, t.started_at)
from (
  select id, case
      when due_at is null or next_run_at <= ?1 then next_run_at
      when parked is not null then iif(next_run_at > ?1 + 660000000, ?1, next_run_at)
      when attempt > 1 and failed_at > ?1 + 2000000 then ?1 + max(next_run_at - failed_at, 0)
      when attempt > 1 and started_at > ?1 + 2000000 then ?1 + max(next_run_at - started_at, 0)
      when next_run_at <= created_at or requeued and next_run_at > ?1 + 120000000 then ?1
      else next_run_at
    end as next_run_at
  from (
    select r.*, (select max(a.finished_at) from attempts a where a.task_id = r.id and a.attempt = r.attempt - 1) as failed_at
    from tasks r
    where r.id > ?2 and r.id <= ?3 and r.state = 'ready' and (+r.due_at > ?1 + 2000000 or +r.ticketed_at > ?1 + 2000000)
  )
) as c
where t.id = c.id and t.due_at is not c.next_run_at;

-- The attempts are corrected last, because the first statement needs their old times.
update attempts set started_at = iif(started_at > ?1, ?1, started_at), finished_at = ?1
where task_id > ?2 and task_id <= ?3 and finished_at > ?1 + 2000000
