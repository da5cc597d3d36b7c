-- insert.sql for tasks of which some have a unique key. A task is not stored if its key is taken, by a stored task or
-- by an earlier task of the same call.
with input as (
  select nextval('holdfast.tasks_id_seq') as id, type, queue, payload, max_attempts, nullif(unique_key, '') as unique_key,
    case
      -- In two parts, because the server multiplies in floating point and would round the end of the year 9999 up.
      when at > 0 then nullif(greatest('epoch'::timestamptz + at / 1000000 * interval '1 second' + at % 1000000 * interval '1 microsecond', now()), now())
      when delay > 0 then now() + delay * interval '1 microsecond'
    end as later
  from unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::bigint[], $6::bigint[], $8::text[])
    as a (type, queue, payload, max_attempts, delay, at, unique_key)
), queues as (
  -- The caller has stored the queues, but a failover may have lost them since. No janitor would find the tasks of a
  -- queue that is not stored.
  insert into holdfast.queues (name)
  select distinct queue from unnest($2::text[]) as a (queue)
  where not exists (select from holdfast.queues q where q.name = a.queue)
  on conflict do nothing
), stored as (
  insert into holdfast.tasks (id, type, queue, payload, max_attempts, unique_key, next_run_at, due_at, ticketed_at)
  select id, type, queue, payload::json, max_attempts, unique_key, coalesce(later, now()), later, case when later is null then now() end
  from input
  -- All callers insert keys in the same order, so that callers that wait for each other's keys do not deadlock.
  order by unique_key collate "C" nulls first, id
  on conflict (unique_key) where unique_key is not null do nothing
  returning id, queue, due_at
), entries as (
  insert into holdfast.outbox (queue, task_ids, publish_after)
  select queue, array_agg(id order by id), now() + $7 * interval '1 microsecond'
  from stored where due_at is null group by queue order by queue
  returning id, queue, task_ids
)
-- The first row lists the tasks that were stored, the second row all tasks.
select -1::bigint as id, '' as queue, coalesce(array_agg(id), '{}') as tasks from stored
union all
select 0, '', array_agg(id order by id) from input
union all
select id, queue, task_ids from entries
order by id
