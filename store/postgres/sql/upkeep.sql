-- name: correct_noted
-- Whether the clock was set back since the newest recorded time.
select exists (select from holdfast.turns where duty = $1 and taken_at > now() + interval '2 seconds') as ahead

-- name: correct_outbox
-- An entry normally waits for less than a minute, and the real age of these entries is unknown. They get a creation
-- time a minute ago, so they are late: when a janitor publishes them, their tasks get a new ticketed_at. $1 is the
-- maximum number of entries.
update holdfast.outbox set
  publish_after = case when publish_after > now() + interval '1 minute' then now() else publish_after end,
  created_at = least(created_at, now() - interval '1 minute')
where id = any(array(
  select id from holdfast.outbox where publish_after > now() + interval '1 minute' or created_at > now() + interval '2 seconds' limit $1
))

-- name: correct_buckets
-- Makes at most $1 buckets of limits due for a check. Only a transaction that gives permits may write buckets, so the
-- statement takes its lock; see limits_lock.
with locked as materialized (select epoch from holdfast.gate_epoch for no key update), picked as materialized (
  select b.gate_id, b.bucket from locked, holdfast.buckets b
  where b.next_at > now() + interval '2 seconds' and b.next_at < {{blocked}} limit $1
)
update holdfast.buckets b set next_at = now() from picked p where b.gate_id = p.gate_id and b.bucket = p.bucket

-- name: correct_breakers
-- The next probe of a breaker may start at once, because the intended wait is not stored. $1 is the maximum number of
-- breakers.
update holdfast.gates set probe_at = now()
where id = any(array(select id from holdfast.gates where probe_at > now() + interval '2 seconds' limit $1))

-- name: correct_tasks
-- One step over the ids above $1 up to $2. It corrects ready tasks whose times the store computed before the clock was
-- set back. It changes at most $3 tasks. It corrects next_run_at only if the intended wait is certain. A parked task
-- becomes due. The wait of a retry began at the time in the record of the last attempt. A task whose attempt was
-- interrupted waits for two minutes at most, also if the clock leapt ahead during the attempt. A task without a delay
-- does not wait.
with ahead as materialized (
  select t.id, t.attempt, t.due_at, t.next_run_at, t.created_at, t.started_at, t.parked, t.requeued, (
      select max(a.finished_at) from holdfast.attempts a where a.task_id = t.id and a.attempt = t.attempt - 1
    ) as failed_at
  from holdfast.tasks t
  where t.id > $1 and t.id <= $2 and t.state = 'ready'
    and (t.due_at > now() + interval '2 seconds' and t.due_at <> {{blocked}} or t.due_at is null and t.ticketed_at > now() + interval '2 seconds')
), corrected as (
  select id, due_at, attempt, case
      when due_at is null or next_run_at <= now() then next_run_at
      when parked is not null then now()
      when attempt > 1 and failed_at > now() + interval '2 seconds' then now() + greatest(next_run_at - failed_at, interval '0')
      when requeued and next_run_at > now() + interval '2 minutes' then now()
      when attempt > 1 and started_at > now() + interval '2 seconds' then now() + greatest(next_run_at - started_at, interval '0')
      when next_run_at <= created_at then now()
      else next_run_at
    end as next_run_at
  from ahead
), picked as materialized (
  select c.*
  from (
    select c.id, c.due_at, c.attempt, c.next_run_at from corrected c where c.due_at is distinct from c.next_run_at order by c.id limit $3
  ) c,
  lateral ( -- one look-up by id; see claim
    select from holdfast.tasks
    where id = c.id and state = 'ready' and attempt = c.attempt and due_at is not distinct from c.due_at
    for update
  ) t
), recorded as (
  update holdfast.attempts a set started_at = case when a.started_at > now() then now() else a.started_at end, finished_at = now()
  from picked p
  where a.task_id = p.id and a.attempt = p.attempt - 1 and a.finished_at > now() + interval '2 seconds'
), changed as (
  update holdfast.tasks t set
    due_at = case when t.due_at is not null then p.next_run_at end,
    next_run_at = p.next_run_at,
    ticketed_at = case when t.ticketed_at > now() then now() else t.ticketed_at end,
    started_at = case when t.started_at > now() then now() else t.started_at end
  from picked p
  where t.id = p.id
  returning t.id
)
select count(*) as changed, coalesce(max(id), 0) as last from changed

-- name: correct_note
insert into holdfast.turns (duty) values ($1)
on conflict (duty) do update set taken_at = now()

-- name: turn
-- If the time of a turn lies in the future, the clock has been set back, and the statement ignores that turn.
insert into holdfast.turns (duty) values ($1)
on conflict (duty) do update set taken_at = now()
where turns.taken_at <= now() - $2 * interval '1 microsecond'
  or turns.taken_at > now() + interval '2 seconds'

-- name: prune_workers
-- Deletes cancellations that no live worker will read, and at most $2 workers. Only workers that certainly own no tasks
-- are deleted.
with notices as (
  delete from holdfast.cancellations c
  where not exists (select from holdfast.workers w where w.id = c.worker_id and w.state = 'live')
), picked as (
  select id from holdfast.workers
  where state <> 'live' and swept and ended_at < now() - $1 * interval '1 microsecond'
  order by id
  limit $2
  for update skip locked
)
delete from holdfast.workers w using picked where w.id = picked.id

-- name: prune_bound
-- A task that was created less than $1 ago cannot have ended more than $1 ago. Ids ascend with the creation time,
-- except for long transactions. So a binary search finds approximately the first such task. Without the bound, every
-- call would read the whole table.
with recursive halves as (
  select (select min(id) from holdfast.tasks) as low, (select max(id) from holdfast.tasks) as high
  union all
  select case when old then middle + 1 else low end, case when old then high else middle - 1 end
  from (
    select low, high, low + (high - low) / 2 as middle, (
      select created_at < now() - $1 * interval '1 microsecond'
      from holdfast.tasks where id >= low + (high - low) / 2 order by id limit 1
    ) as old
    from halves where low <= high
  ) step
)
select coalesce(max(low), 0) as bound from halves

-- name: prune_tasks
-- One step over the ids above $1 up to $2. An age of 0 keeps tasks forever. The statement deletes the attempts and the
-- data of a task with the task. It sees all of them, because a task in a final state gets no more of them. The tasks of
-- a batch stay until the batch has ended.
with picked as (
  select id from holdfast.tasks
  where id > $1 and id <= $2 and (
    $4::bigint > 0 and state = 'done' and finished_at < now() - $4::bigint * interval '1 microsecond'
    or $5::bigint > 0 and state = 'cancelled' and finished_at < now() - $5::bigint * interval '1 microsecond'
    or $6::bigint > 0 and state = 'archived' and finished_at < now() - $6::bigint * interval '1 microsecond'
  ) and {{not_counted}}
  order by id
  limit $3
  for update skip locked
), attempts as (
  delete from holdfast.attempts a using picked where a.task_id = picked.id
), data as (
  delete from holdfast.task_data d using picked where d.task_id = picked.id
), deleted as (
  delete from holdfast.tasks t using picked where t.id = picked.id returning t.id, t.queue, t.type, t.state
), counted as (
  insert into holdfast.count_deltas (queue, type, state, block, n)
  select queue, type, unnest(array['all', state]), id / {{block}}, -count(*) from deleted group by queue, type, state, 4
)
select count(*) as changed, coalesce(max(id), 0) as last from deleted

-- name: steps
-- The first id above $1 and the last id of all, with two index look-ups.
select coalesce((select min(id) from holdfast.tasks where id > $1), 0) as first,
  coalesce((select max(id) from holdfast.tasks), 0) as last

-- name: steps_settings
-- Outdated statistics may suggest that a range of ids is the whole table, so sequential scans are off. Hash joins are
-- on, because a step joins many tasks with a few queues or workers. Other statements look up single tasks.
set local enable_seqscan = off;
set local enable_hashjoin = on

-- name: report_duty
-- Stores the report of a duty that fails, and deletes the reports of processes that ended long ago.
with expired as (
  delete from holdfast.failing_duties where valid_until < now() - interval '1 hour' and (janitor, duty) <> ($1, $2)
)
insert into holdfast.failing_duties (janitor, duty, error, since, valid_until)
values ($1, $2, $3, now() - $4 * interval '1 microsecond', now() + $5 * interval '1 microsecond')
on conflict (janitor, duty) do update set error = excluded.error, since = excluded.since, valid_until = excluded.valid_until

-- name: clear_duty
delete from holdfast.failing_duties where janitor = $1 and duty = $2

-- name: prune_keys
-- Deletes at most $2 unique keys whose time has passed at least $1 ago.
delete from holdfast.kept_keys
where key in (
  select key from holdfast.kept_keys
  where until <= now() - $1 * interval '1 microsecond'
  order by until
  limit $2
  for update skip locked
)

-- name: prune_answers
-- Deletes at most $2 answers that are older than $1.
delete from holdfast.answers
where (scope, key) in (
  select scope, key from holdfast.answers
  where created_at < now() - $1 * interval '1 microsecond'
  order by created_at
  limit $2
  for update skip locked
)
