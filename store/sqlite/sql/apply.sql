-- name: complete
-- Applies plain successes, which are nearly all results. ?1 lists [task, attempt, worker], and ?2 is the present time.
update tasks
set state = 'done', worker_id = null, finished_at = ?2
from json_each(?1) as m
where tasks.id = m.value ->> 0 and tasks.attempt = m.value ->> 1 and +tasks.worker_id = m.value ->> 2 and tasks.state = 'running'
returning tasks.id, tasks.queue, tasks.type

-- name: complete_uniform
-- The variant of complete for results of one attempt number ?3 and one worker ?4. ?1 lists the tasks.
update tasks
set state = 'done', worker_id = null, finished_at = ?2
where tasks.id in (select value from json_each(?1)) and tasks.attempt = ?3 and +tasks.worker_id = ?4 and tasks.state = 'running'

-- name: apply_record
insert into attempts (task_id, attempt, event, worker_id, worker_name, started_at, finished_at, class, error, stack, details)
select t.id, t.attempt, ?5, t.worker_id, coalesce((select name from workers where id = t.worker_id), ''), t.started_at, ?6, ?7, ?8, nullif(?9, ''), nullif(?10, '')
from tasks t
where {{apply_unchanged}}
on conflict do nothing

-- name: apply_unblock
delete from blocked where task_id = ?1 and exists (select 1 from tasks t where {{apply_unchanged}} and t.state = 'ready')

-- name: apply_leave
-- The task no longer waits for its turn among the ordered tasks of its key.
delete from key_waits
where task_id = ?1 and key = ?5 and exists (select 1 from tasks t where {{apply_unchanged}} and t.state = 'ready')

-- name: apply_wait
-- The ordered task waits for its turn again.
insert into key_waits (key, task_id)
select t.key, t.id from tasks t where {{apply_unchanged}} and t.ordered is not null
on conflict do nothing

-- name: apply_leave_topic
-- The task has ended, so it no longer waits for a slot.
delete from topic_tasks
where task_id = ?1 and exists (select 1 from tasks t where {{apply_unchanged}} and t.state = 'ready' and t.topic is not null)

-- name: apply_topic
-- The task with a topic is open again.
insert into topic_tasks (task_id, queue, topic, phase)
select t.id, t.queue, t.topic, iif(t.started_at is null, 3, 4) from tasks t where {{apply_unchanged}} and t.topic is not null
on conflict (task_id) do update set queue = excluded.queue, phase = excluded.phase

-- name: apply_notify
insert into cancellations (worker_id, task_id, attempt, created_at)
select t.worker_id, t.id, t.attempt, ?5 from tasks t where {{apply_unchanged}} and t.state = 'running'

-- name: apply
-- ?5 is the present time, ?6 the new state, and ?7 the time at which the task is due if the new state is ready. ?15 is
-- the new mark of an ordered task, or 0, and ?16 is 1 if the task waits for its turn.
update tasks as t
set state = ?6, worker_id = null, attempt = ?8,
  failures = ?9, crashes = ?10, deferrals = ?11, max_attempts = ?12,
  next_run_at = iif(?6 = 'ready', ?7, t.next_run_at),
  due_at = iif(?16, {{blocked}}, iif(?6 = 'ready', ?7, null)),
  ordered = iif(?15 and t.ordered is not null, ?15, t.ordered),
  finished_at = iif(?6 = 'ready', null, iif(?6 = 'dead' and t.state = 'archived', {{died_at}}, ?5)),
  dead_at = iif(?6 = 'dead', iif(t.state = 'archived', {{died_at}}, ?5), null),
  last_error = coalesce(nullif(?13, ''), t.last_error),
  requeued = ?14,
  ticketed_at = null, parked = null
where {{apply_unchanged}}

-- name: apply_death
-- ?5 is the present time, and ?6 to ?9 describe the death.
insert into deaths (task_id, died_at, type, queue, fingerprint, class, host, status)
select t.id, ?5, t.type, t.queue, ?6, ?7, ?8, ?9 from tasks t where {{apply_unchanged}}
on conflict (task_id) do update
set died_at = excluded.died_at, fingerprint = excluded.fingerprint, class = excluded.class, host = excluded.host, status = excluded.status

-- name: apply_revival
delete from deaths
where task_id = ?1 and exists (select 1 from tasks t where {{apply_unchanged}} and t.state = 'dead')
