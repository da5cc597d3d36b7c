-- name: insert_uniform
-- The variant of insert for tasks that differ only in their payloads and are due at once. Most calls have such tasks.
-- The ids ascend in the order of the payloads, because the server stores the rows one after another. The statement
-- returns the list of ids only if the list has gaps.
with queues as (
  insert into holdfast.queues (name)
  select $1::text where not exists (select from holdfast.queues q where q.name = $1::text)
  on conflict do nothing
), stored as (
  insert into holdfast.tasks (type, queue, max_attempts, payload, ticketed_at{{plan_column}})
  select $2, $1, $3, payload, now(){{plan_value}} from {{uniform_tasks}}
  returning id
), listed as materialized (
  select array_agg(id) as ids from stored
), counted as (
  insert into holdfast.count_deltas (queue, type, state, block, n)
  {{count_stored}}
)
insert into holdfast.outbox (queue, task_ids, publish_after)
select $1, ids, now() + $5 * interval '1 microsecond' from listed
returning id, task_ids[1] as first, cardinality(task_ids) as size,
  case when task_ids[cardinality(task_ids)] - task_ids[1] >= cardinality(task_ids) then task_ids end as tasks

-- name: insert
-- Stores tasks without unique keys, and their outbox entries. Delays, and times since 1970, are in microseconds; 0 or a
-- list that is too short means none.
with input as (
  select nextval('holdfast.tasks_id_seq') as id, type, queue, payload, max_attempts,
    {{later}}
  from unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::bigint[], $6::bigint[])
    as a (type, queue, payload, max_attempts, delay, at)
), {{stored_queues}}, stored as (
  insert into holdfast.tasks (id, type, queue, payload, max_attempts, next_run_at, due_at, ticketed_at{{plan_column}})
  select id, type, queue, payload::json, max_attempts, coalesce(later, now()), later, case when later is null then now() end{{plan_value}}
  from input
), counted as (
  insert into holdfast.count_deltas (queue, type, state, block, n)
  select queue, type, 'all', id / {{block}}, count(*) from input group by 1, 2, 4
), entries as (
  insert into holdfast.outbox (queue, task_ids, publish_after)
  select queue, array_agg(id order by id), now() + $7 * interval '1 microsecond'
  from input where later is null group by queue order by queue
  returning id, queue, task_ids
)
-- The first row has the ids of all tasks. They ascend in the order of the input.
select 0::bigint as id, '' as queue, array_agg(id order by id) as tasks from input
union all
select id, queue, task_ids from entries
order by id

-- name: insert_unique
-- The variant of insert for tasks of which some have a unique key, a key, a topic, tags or a trace. It skips a task if a
-- stored task or an earlier task of the call has its unique key, or if the key is kept for a deleted task. $14 lists for
-- how many microseconds the store keeps the keys; 0 means as long as the task. The place of an ordered task is 1 if the
-- task becomes the active one of its key, 2 if it waits, and 3 if it is doomed. The caller has locked the keys of ordered
-- tasks. The lists are in subqueries, so that the server does not plan each execution for their lengths.
with input as (
  select nextval('holdfast.tasks_id_seq') as id, type, queue, payload, max_attempts, nullif(unique_key, '') as unique_key,
    nullif(tags, '')::json as tags, nullif(key, '') as key, nullif(place, 0) as place, nullif(topic, '') as topic, nullif(trace, '') as trace, kept,
    {{later}}
  from unnest((select $1::text[]), (select $2::text[]), (select $3::text[]), (select $4::int[]), (select $5::bigint[]), (select $6::bigint[]),
      (select $8::text[]), (select $9::text[]), (select $10::text[]), (select $11::int[]), (select $12::text[]), (select $13::text[]), (select $14::bigint[]))
    as a (type, queue, payload, max_attempts, delay, at, unique_key, tags, key, place, topic, trace, kept)
  where (select pg_current_xact_id()) is not null -- before the first id is taken; see topic_look
), {{stored_queues}}, stored as (
  insert into holdfast.tasks (id, type, queue, payload, max_attempts, unique_key, tags, key, next_run_at, due_at, ticketed_at, ordered, topic, trace{{plan_column}})
  select id, type, queue, payload::json, max_attempts, unique_key, tags, key, coalesce(later, now()),
    -- Below, only the due time distinguishes waiting tasks from others. If an ordered task with a topic becomes the
    -- active one of its key, it waits for a slot when a janitor finds that it is due.
    case
      when place = 2 or later is null and topic is not null and place is null then {{blocked}}
      when later = {{blocked}} and (place = 1 or topic is not null) then later + interval '1 microsecond'
      when later is null and topic is not null then now()
      else later
    end, case when later is null and place is distinct from 2 and topic is null then now() end,
    case when place = 3 then 2 when place is not null then 1 end, topic, trace{{plan_value}}
  from input i
  where unique_key is null or (select k.until > now() from holdfast.kept_keys k where k.key = i.unique_key) is not true
  -- All callers insert keys in the same order, so that they do not deadlock when they wait for each other's keys.
  order by unique_key collate "C" nulls first, id
  on conflict (unique_key) where unique_key is not null do nothing
  returning id, queue, type, due_at, tags, key, ordered, topic
), kept as (
  insert into holdfast.kept_keys (key, task_id, until)
  select max(unique_key), id, now() + max(kept) * interval '1 microsecond'
  from ( -- not a join, which would compare each row with each other row
    select id, unique_key, kept from input where kept > 0
    union all
    select id, null, null from stored where cardinality($14::bigint[]) > 0
  ) a group by id having count(*) = 2 and max(kept) > 0 order by 1
  on conflict (key) do update set task_id = excluded.task_id, created_at = excluded.created_at, until = excluded.until
), counted as (
  insert into holdfast.count_deltas (queue, type, state, block, n)
  select queue, type, 'all', id / {{block}}, count(*) from stored group by 1, 2, 4
), tagged as (
  insert into holdfast.tags (tag, task_id)
  select word, id from stored, json_array_elements_text(tags) as w (word) where tags is not null
), keyed as (
  insert into holdfast.keys (key, task_id) select key, id from stored where key is not null
), waits as (
  insert into holdfast.key_waits (key, task_id) select key, id from stored where ordered = 1 and due_at = {{blocked}}
), topical as (
  insert into holdfast.topic_tasks (task_id, queue, topic, phase)
  select id, queue, topic, case when ordered is null and due_at = {{blocked}} then 0 else 3 end from stored where topic is not null
), arrived as (
  insert into holdfast.topic_arrivals (queue, topic)
  select distinct queue, topic from stored where topic is not null and ordered is null and due_at = {{blocked}}
), active as (
  update holdfast.key_order o set active = s.id from stored s where s.ordered = 1 and s.due_at is distinct from {{blocked}} and o.key = s.key
), entries as (
  insert into holdfast.outbox (queue, task_ids, publish_after)
  select queue, array_agg(id order by id), now() + $7 * interval '1 microsecond'
  from stored where due_at is null group by queue order by queue
  returning id, queue, task_ids
)
-- The first row has the tasks that were stored, the second row all tasks.
select -1::bigint as id, '' as queue, coalesce(array_agg(id), '{}') as tasks from stored
union all
select 0, '', array_agg(id order by id) from input
union all
select id, queue, task_ids from entries
order by id

-- name: insert_release
-- Removes unique keys from tasks that were stored at least so many microseconds ago, or that have ended, and from deleted
-- tasks in the same cases. An age of 0 is none. The keys are sorted, so that no two of these statements wait for each
-- other.
with released as (
  select t.id, t.unique_key as key
  from unnest($1::text[], $2::bigint[], $3::boolean[]) with ordinality as k (key, age, ended, place)
  join holdfast.tasks t on t.unique_key = k.key
  where k.age > 0 and t.created_at <= now() - k.age * interval '1 microsecond' or k.ended and t.state in ('done', 'dead', 'cancelled', 'archived')
  order by k.place
  for no key update of t
), freed as (
  update holdfast.tasks t set unique_key = null from released r where t.id = r.id
), ended as (
  select k.key, x.task_id as id
  from unnest($1::text[], $2::bigint[], $3::boolean[]) with ordinality as k (key, age, ended, place)
  join holdfast.kept_keys x on x.key = k.key
  -- A row whose time has passed stays: it keeps nothing, and two calls must not lock it and the key of a task in different
  -- orders.
  where (k.ended or k.age > 0 and x.created_at <= now() - k.age * interval '1 microsecond') and x.until > now()
    and not exists (select from holdfast.tasks t where t.unique_key = k.key)
)
-- The comparison of the ids keeps a row that another transaction has replaced meanwhile.
delete from holdfast.kept_keys x
using (select id, key from released union all select id, key from ended order by 2) r
where x.key = r.key and x.task_id = r.id

-- name: insert_holders
-- The tasks that have the unique keys. A task that is deleted has no state. A kept key is looked up with the collation of
-- the index of the tasks, and one by one.
select id, unique_key as key, state from holdfast.tasks where unique_key = any($1::text[])
union all
select k.task_id, k.key, coalesce((select t.state from holdfast.tasks t where t.id = k.task_id), '')
from holdfast.kept_keys k
where k.key = any($1::text[]) and k.until > now() and (select t.id from holdfast.tasks t where t.unique_key = k.key collate "default") is null

-- name: insert_queues
insert into holdfast.queues (name) select unnest($1::text[]) on conflict do nothing

-- name: committed_outbox
-- The entries are looked up by id. Without "offset 0" the server may read all entries by publish_after.
select id, queue, task_ids as tasks
from (select id, queue, task_ids, publish_after from holdfast.outbox where id = any($1::bigint[]) offset 0) as found
where publish_after > now()

-- name: delete_outbox
-- The statement skips an outbox entry that a janitor is publishing right now. The janitor deletes it, and its tickets
-- may be published twice.
delete from holdfast.outbox where id in (
  select id from holdfast.outbox where id = any($1::bigint[]) order by id for update skip locked
)
