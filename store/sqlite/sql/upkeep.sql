-- name: correct_noted
-- Whether the clock was set back since the newest recorded time.
select count(*) as n from turns where duty = ?2 and taken_at > ?1 + 2000000

-- name: correct_note
insert into turns (duty, taken_at) values (?1, ?2)
on conflict (duty) do update set taken_at = excluded.taken_at

-- name: correct_outbox
-- An entry normally waits for less than a minute, and the real age of these entries is unknown. They get a creation
-- time a minute ago, so they are late: when a janitor publishes them, their tasks get a new ticketed_at. ?1 is the
-- maximum number of entries, ?2 the present time.
update outbox set publish_after = iif(publish_after > ?2 + 60000000, ?2, publish_after), created_at = min(created_at, ?2 - 60000000)
where id in (select id from outbox where id > 0 and (publish_after > ?2 + 60000000 or created_at > ?2 + 2000000) limit ?1)

-- name: correct_buckets
-- Makes at most ?1 buckets of limits due for a check. ?2 is the present time.
update buckets set next_at = ?2
where (gate_id, bucket) in (select gate_id, bucket from buckets where next_at > ?2 + 2000000 and next_at < {{blocked}} limit ?1)

-- name: correct_breakers
-- The next probe of a breaker may start at once, because the intended wait is not stored. ?1 is the maximum number of
-- breakers, ?2 the present time.
update gates set probe_at = ?2 where id in (select id from gates where probe_at > ?2 + 2000000 limit ?1)

-- name: correct_range
-- The first id above ?1, and the highest id of all.
select coalesce((select min(id) from tasks where id > ?1), 0) as first, coalesce((select max(id) from tasks), 0) as last

-- name: correct_tasks
-- One step over the ids above ?2 up to ?3. ?1 is the present time. The statement corrects ready tasks whose times the
-- store computed before the clock was set back. It corrects next_run_at only if the intended wait is certain. A parked
-- task becomes due. The wait of a retry began at the time in the record of the last attempt. A task whose attempt was
-- interrupted waits for two minutes at most, also if the clock leapt ahead during the attempt. A task without a delay
-- does not wait.
update tasks as t set
  due_at = iif(t.due_at is null, null, c.next_run_at),
  next_run_at = c.next_run_at,
  ticketed_at = iif(t.ticketed_at > ?1, ?1, t.ticketed_at),
  started_at = iif(t.started_at > ?1, ?1, t.started_at)
from (
  select id, case
      when due_at is null or next_run_at <= ?1 then next_run_at
      when parked is not null then ?1
      when attempt > 1 and failed_at > ?1 + 2000000 then ?1 + max(next_run_at - failed_at, 0)
      when requeued and next_run_at > ?1 + 120000000 then ?1
      when attempt > 1 and started_at > ?1 + 2000000 then ?1 + max(next_run_at - started_at, 0)
      when next_run_at <= created_at then ?1
      else next_run_at
    end as next_run_at
  from (
    select r.*, (select max(a.finished_at) from attempts a where a.task_id = r.id and a.attempt = r.attempt - 1) as failed_at
    from tasks r
    where r.id > ?2 and r.id <= ?3 and r.state = 'ready' and (+r.due_at > ?1 + 2000000 and +r.due_at <> {{blocked}} or +r.ticketed_at > ?1 + 2000000)
  )
) as c
where t.id = c.id and t.due_at is not c.next_run_at;

-- The statement corrects the attempts last, because the first statement needs their old times.
update attempts set started_at = iif(started_at > ?1, ?1, started_at), finished_at = ?1
where task_id > ?2 and task_id <= ?3 and finished_at > ?1 + 2000000

-- name: turn_taken
-- If the time of a turn lies in the future, the clock was set back since then, and the statement ignores that turn.
select count(*) as n from turns where duty = ?1 and taken_at > ?2 - ?3 and taken_at <= ?2 + 2000000

-- name: turn
insert into turns (duty, taken_at) values (?1, ?3)
on conflict (duty) do update set taken_at = excluded.taken_at
where turns.taken_at <= ?3 - ?2 or turns.taken_at > ?3 + 2000000

-- name: prune_tasks
-- Deletes at most ?3 tasks that ended before ?2 in the state ?1, with their attempts and payloads. The tasks of a batch
-- stay until the batch has ended.
delete from tasks where id in (
  select id from tasks where state = ?1 and finished_at < ?2 and {{not_counted}} order by finished_at limit ?3
)

-- name: prune_cancellations
-- Deletes at most ?1 cancellations that no live worker will read.
delete from cancellations where id in (
  select c.id from cancellations c where not exists (select 1 from workers w where w.id = c.worker_id and w.state = 'live') limit ?1
)

-- name: prune_workers
-- Deletes at most ?2 workers. Only workers that certainly own no tasks are deleted.
delete from workers where id in (
  select id from workers where state <> 'live' and swept and ended_at < ?1 order by id limit ?2
)

-- name: report_duty
-- Stores the report of a duty that fails, and deletes the reports of processes that ended more than an hour ago. ?6 is
-- now.
delete from failing_duties where valid_until < ?6 - 3600000000;

insert into failing_duties (janitor, duty, error, since, valid_until) values (?1, ?2, ?3, ?6 - ?4, ?6 + ?5)
on conflict (janitor, duty) do update set error = excluded.error, since = excluded.since, valid_until = excluded.valid_until

-- name: clear_duty
delete from failing_duties where janitor = ?1 and duty = ?2

-- name: prune_keys
-- Deletes at most ?2 unique keys that are kept until ?1.
delete from kept_keys where key in (select key from kept_keys where until <= ?1 order by until limit ?2)

-- name: prune_answers
-- Deletes at most ?2 answers that are older than ?1.
delete from answers where rowid in (select rowid from answers where created_at < ?1 order by created_at limit ?2)
