-- name: edit
-- Edits tasks. $1 is a JSON array. A ready task becomes due at the time of its next run, so that it gets a ticket with
-- the new attempt number. A given time is not that of a hand-back; see correct_tasks. A new payload removes the
-- idempotency key of an imported task; an undo restores the payload and the key.
with changed as (
  update holdfast.tasks t
  set attempt = t.attempt + 1,
    payload = coalesce(e.payload::json, t.payload),
    idempotency_key = case when e.payload is null then t.idempotency_key else nullif(e.key, '') end,
    queue = coalesce(nullif(e.queue, ''), t.queue),
    max_attempts = case when e.max_attempts = 0 then t.max_attempts else greatest(e.max_attempts, 0) end,
    next_run_at = case when e.run_at = 0 then t.next_run_at else timestamptz 'epoch' + e.run_at * interval '1 microsecond' end,
    due_at = case
      when t.state <> 'ready' then null
      when t.due_at = {{blocked}} and {{waits}} then {{blocked}}
      when e.run_at = 0 then t.next_run_at
      else timestamptz 'epoch' + e.run_at * interval '1 microsecond'
    end,
    tags = case when e.tags is null then t.tags else nullif(e.tags, '')::json end,
    ticketed_at = null, parked = null, requeued = t.requeued and e.run_at = 0
  from json_to_recordset($1::json) as e (task bigint, attempt int, state text, payload text, key text, queue text, max_attempts int, run_at bigint, tags text)
  where t.id = e.task and t.attempt = e.attempt and t.state = e.state and t.state not in ('running', 'done')
  returning t.id, t.queue, t.type, t.state
), moved as (
  -- The statement sees the rows of tasks as they were before the edit.
  select o.id, o.queue, o.type, o.state, -1 as n from changed c join holdfast.tasks o on o.id = c.id where o.queue <> c.queue
  union all
  select c.id, c.queue, c.type, c.state, 1 from changed c join holdfast.tasks o on o.id = c.id where o.queue <> c.queue
), counted as (
  insert into holdfast.count_deltas (queue, type, state, block, n)
  select queue, type, 'all', id / {{block}}, n from moved
  union all
  select queue, type, state, id / {{block}}, n from moved where state <> 'ready'
)
select id from changed

-- name: edited
-- Updates the other tables after edits of the tasks $1.
with unblocked as (
  delete from holdfast.blocked where task_id = any ($1::bigint[])
), stored as (
  insert into holdfast.queues (name)
  select distinct queue from holdfast.tasks t
  where id = any ($1::bigint[]) and not exists (select from holdfast.queues q where q.name = t.queue)
  on conflict do nothing
)
update holdfast.deaths d set queue = t.queue
from holdfast.tasks t
where t.id = any ($1::bigint[]) and d.task_id = t.id and d.queue <> t.queue

-- name: untag
-- Removes tags from tasks. $1 is a JSON array.
delete from holdfast.tags g using json_to_recordset($1::json) as e (task bigint, tag text)
where g.tag = e.tag and g.task_id = e.task

-- name: purge
-- Deletes tasks with their attempts, their data, the records of their deaths and their unique keys. $1 is a JSON array.
with picked as (
  select t.id
  from json_to_recordset($1::json) as p (task bigint, attempt int, state text)
    join holdfast.tasks t on t.id = p.task and t.attempt = p.attempt and t.state = p.state
  where t.state not in ('ready', 'running')
  order by t.id
  for update of t
), attempts as (
  delete from holdfast.attempts a using picked p where a.task_id = p.id
), data as (
  delete from holdfast.task_data d using picked p where d.task_id = p.id
), deaths as (
  delete from holdfast.deaths d using picked p where d.task_id = p.id
), deleted as (
  delete from holdfast.tasks t using picked p where t.id = p.id
  returning t.id, t.queue, t.type, t.state, t.unique_key
), freed as (
  delete from holdfast.kept_keys k using deleted d where k.key = d.unique_key
), counted as (
  insert into holdfast.count_deltas (queue, type, state, block, n)
  select queue, type, unnest(array['all', state]), id / {{block}}, -count(*) from deleted group by queue, type, state, 4
)
select id from deleted
