-- name: transfer_last
-- The highest id that the sequence has given out or that a task has.
select greatest(
  (select case when is_called then last_value else 0 end from holdfast.tasks_id_seq),
  (select coalesce(max(id), 0) from holdfast.tasks)
) as last

-- name: export
-- Every task with its data and its attempts. The JSON values in them are text, so that every character is kept.
select {{columns}}, t.payload, t.requeued, exists (select from holdfast.key_order o where o.key = t.key and o.active = t.id) as leads,
  coalesce(case when t.park_attempt = t.attempt then t.park_count end, 0) as parks, coalesce((
    select json_agg(json_build_object('name', d.name, 'attempt', d.attempt, 'value', d.value::text, 'at', d.at) order by d.name)
    from holdfast.task_data d where d.task_id = t.id
  )::text, '') as data, coalesce((
    select json_agg(json_build_object(
      'task', a.task_id, 'attempt', a.attempt, 'event', a.event, 'worker_name', a.worker_name, 'started_at', a.started_at,
      'finished_at', a.finished_at, 'class', a.class, 'error', a.error, 'stack', a.stack, 'details', a.details::text
    ) order by a.attempt, a.finished_at, a.event collate "C")
    from holdfast.attempts a where a.task_id = t.id
  )::text, '') as attempts
from holdfast.tasks t
order by t.id

-- name: transfer_lock
-- An insert holds a lock that conflicts with this one, from before it takes an id until it commits. So the tasks and
-- the sequence do not change while this lock is held. Inserts wait while this statement waits, so lock_timeout limits
-- the wait. tcp_user_timeout is off, because a slow reader of an export must not end the connection.
set local lock_timeout = '10s';
set local tcp_user_timeout = 0;
lock table holdfast.tasks in share row exclusive mode

-- name: import_last
-- The next task gets an id above $1. A sequence cannot be set to 0, and 1 is harmless.
select setval('holdfast.tasks_id_seq', greatest($1::bigint, 1)) as last

-- name: import
-- Times are text, so that every digit is kept; '' means none. No imported task has a ticket, so a ready task gets a
-- due_at. The statement skips a task whose id or unique key is already in use, or whose unique key is kept for another
-- task.
with stored as (
  insert into holdfast.tasks (
    id, type, queue, state, payload, unique_key, attempt, max_attempts, failures, crashes, deferrals,
    next_run_at, created_at, started_at, finished_at, due_at, dead_at, requeued, last_error, parked, idempotency_key,
    park_count, park_attempt, tags, key, ordered, topic, trace
  )
  select id, type, queue, state, payload::json, nullif(unique_key, ''), attempt, max_attempts, failures, crashes, deferrals,
    next_run_at::timestamptz, created_at::timestamptz, nullif(started_at, '')::timestamptz, nullif(finished_at, '')::timestamptz,
    case when state = 'ready' then next_run_at::timestamptz end, case when state = 'dead' then finished_at::timestamptz end,
    requeued, nullif(last_error, ''), nullif(parked, ''), nullif(idempotency_key, ''),
    nullif(parks, 0), case when parks > 0 then attempt end, nullif(tags, '')::json, nullif(key, ''), nullif(ordered, 0), nullif(topic, ''), nullif(trace, '')
  from unnest(
    $1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::int[], $8::int[], $9::int[], $10::int[], $11::int[],
    $12::text[], $13::text[], $14::text[], $15::text[], $16::bool[], $17::text[], $18::text[], $19::text[],
    $20::int[], $21::text[], $22::text[], $23::int[], $24::text[], $25::text[]
  ) as t (
    id, type, queue, state, payload, unique_key, attempt, max_attempts, failures, crashes, deferrals,
    next_run_at, created_at, started_at, finished_at, requeued, last_error, parked, idempotency_key, parks, tags, key, ordered, topic, trace
  )
  where not exists (select from holdfast.kept_keys k where k.key = t.unique_key and k.task_id <> t.id and k.until > now())
  on conflict do nothing
  returning id, queue, type, state, key
), keyed as (
  insert into holdfast.keys (key, task_id) select key, id from stored where key is not null
), counted as (
  insert into holdfast.count_deltas (queue, type, state, block, n)
  select queue, type, final, id / {{block}}, count(*)
  from (
    select id, queue, type, 'all' as final from stored
    union all
    select id, queue, type, state from stored where state <> 'ready'
  ) moved
  group by 1, 2, 3, 4
)
select id from stored

-- name: import_ordered
-- Stores the places of the ordered tasks in the JSON document $1. Later checks of their keys decide which tasks start.
with listed as materialized (
  select * from json_to_recordset($1) as r (key text, task bigint, leads boolean, waits boolean, dead smallint)
), active as (
  insert into holdfast.key_order (key, active, dead) select key, task, dead from listed where leads
  on conflict (key) do update set active = excluded.active, dead = excluded.dead
), waits as (
  insert into holdfast.key_waits (key, task_id) select key, task from listed where waits
  on conflict do nothing
), checks as (
  insert into holdfast.key_checks (key) select distinct key from listed
)
update holdfast.tasks t set due_at = {{blocked}} from listed l where l.waits and t.id = l.task

-- name: import_tags
-- The rows of the imported tasks $1.
insert into holdfast.tags (tag, task_id)
select w.word, t.id from holdfast.tasks t, json_array_elements_text(t.tags) as w (word) where t.id = any($1::bigint[])
on conflict do nothing

-- name: import_attempts
insert into holdfast.attempts (task_id, attempt, event, worker_name, started_at, finished_at, class, error, stack, details)
select task, attempt, event, worker_name, nullif(started_at, '')::timestamptz, finished_at::timestamptz,
  class, error, nullif(stack, ''), nullif(details, '')::json
from unnest(
  $1::bigint[], $2::int[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[]
) as a (task, attempt, event, worker_name, started_at, finished_at, class, error, stack, details)
