-- name: edit
-- Edits tasks. ?1 is a JSON array. A ready task becomes due at the time of its next run, so that it gets a ticket with
-- the new attempt number. A given time is not that of a hand-back; see correct_tasks. A new payload removes the
-- idempotency key of an imported task; an undo restores the payload and the key. Edits are rare, so an edited payload
-- stays in this row even if it is long.
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
  ticketed_at = null, parked = null, requeued = iif(coalesce(e.value ->> 'run_at', 0) = 0, tasks.requeued, 0)
from json_each(?1) as e
where tasks.id = e.value ->> 'task' and tasks.attempt = e.value ->> 'attempt' and tasks.state = e.value ->> 'state'
  and tasks.state not in ('running', 'done')
returning tasks.id

-- name: edited
-- Updates the other tables after edits of the tasks ?1. ?2 is the present time.
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
-- Removes tags from tasks. ?1 is a JSON array.
delete from tags where (tag, task_id) in (select value ->> 'tag', value ->> 'task' from json_each(?1))

-- name: purge
-- Deletes tasks with their attempts, payloads, records of deaths and unique keys. ?1 is a JSON array.
delete from kept_keys where key in (
  select tasks.unique_key from json_each(?1) as e join tasks
    on tasks.id = e.value ->> 'task' and tasks.attempt = e.value ->> 'attempt' and tasks.state = e.value ->> 'state'
  where tasks.state not in ('ready', 'running')
);

delete from tasks
where id in (
  select tasks.id from json_each(?1) as e join tasks
    on tasks.id = e.value ->> 'task' and tasks.attempt = e.value ->> 'attempt' and tasks.state = e.value ->> 'state'
  where tasks.state not in ('ready', 'running')
)
returning id
