-- name: edit
-- ?1 is a JSON array. A ready task gets the due time of its next run, so that it gets a ticket with the new attempt
-- number. The idempotency key that a task brought along ends with its payload, and an undo brings both back. An edited payload stays in this row even
-- if it is long, because edits are rare.
update tasks
set attempt = tasks.attempt + 1,
  payload = coalesce(e.value ->> 'payload', tasks.payload),
  idempotency_key = iif(e.value ->> 'payload' is null, tasks.idempotency_key, nullif(e.value ->> 'key', '')),
  queue = coalesce(nullif(e.value ->> 'queue', ''), tasks.queue),
  max_attempts = iif(e.value ->> 'max_attempts' = 0, tasks.max_attempts, max(e.value ->> 'max_attempts', 0)),
  next_run_at = coalesce(nullif(e.value ->> 'run_at', 0), tasks.next_run_at),
  due_at = case
    when tasks.state <> 'ready' then null
    when tasks.due_at = {{blocked}} and tasks.ordered is not null
      and exists (select 1 from key_waits w where w.key = tasks.key and w.task_id = tasks.id) then {{blocked}}
    else coalesce(nullif(e.value ->> 'run_at', 0), tasks.next_run_at)
  end,
  tags = iif(e.value ->> 'tags' is null, tasks.tags, nullif(e.value ->> 'tags', '')),
  ticketed_at = null, parked = null
from json_each(?1) as e
where tasks.id = e.value ->> 'task' and tasks.attempt = e.value ->> 'attempt' and tasks.state = e.value ->> 'state'
  and tasks.state not in ('running', 'done')
returning tasks.id

-- name: edited
-- Stores what follows from the edits of the tasks ?1. ?2 is now.
delete from payloads
where task_id in (select value from json_each(?1))
  and exists (select 1 from tasks where tasks.id = payloads.task_id and tasks.payload is not null);

delete from blocked where task_id in (select value from json_each(?1));

insert into queues (name, created_at)
select distinct queue, ?2 from tasks where id in (select value from json_each(?1))
on conflict do nothing;

update deaths set queue = (select queue from tasks where tasks.id = deaths.task_id)
where task_id in (select value from json_each(?1))

-- name: untag
-- ?1 is a JSON array.
delete from tags where (tag, task_id) in (select value ->> 'tag', value ->> 'task' from json_each(?1))

-- name: tag
-- ?1 is a JSON array.
insert into tags (tag, task_id) select value ->> 'tag', value ->> 'task' from json_each(?1) where true on conflict do nothing

-- name: purge
-- ?1 is a JSON array. The attempts, the payload and the record of the death are deleted with the task.
delete from tasks
where id in (
  select tasks.id from json_each(?1) as e join tasks
    on tasks.id = e.value ->> 'task' and tasks.attempt = e.value ->> 'attempt' and tasks.state = e.value ->> 'state'
  where tasks.state not in ('ready', 'running')
)
returning id

-- name: audit_record
-- ?1 is a JSON array, and ?2 is now. The documents are text in it, which keeps their form.
insert into audit (at, actor, surface, reason, action, task_id, operation_id, subject, before, after)
select ?2, value ->> 'actor', value ->> 'surface', value ->> 'reason', value ->> 'action', nullif(value ->> 'task', 0),
  nullif(value ->> 'operation', 0), value ->> 'subject', value ->> 'before', value ->> 'after'
from json_each(?1)

-- name: audit_log
-- ?1 is a task, ?2 an operation, ?3 an actor, and ?4 an action. ?5 and ?6 bound the time, ?7 is an exclusive upper bound
-- of ids, ?8 is the limit, and ?9 a subject.
select id, at, actor, surface, reason, action, coalesce(task_id, 0) as task, coalesce(operation_id, 0) as operation, subject,
  coalesce(before, '') as before, coalesce(after, '') as after
from audit {{audit_entries}}
  (?2 = 0 or operation_id = ?2)
  and (?3 = '' or actor = ?3)
  and (?4 = '' or action = ?4)
  and (?5 = 0 or at >= ?5)
  and (?6 = 0 or at < ?6)
  and (?7 = 0 or id < ?7)
order by id desc
limit ?8
