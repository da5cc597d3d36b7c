-- Stores tasks without unique keys, and their outbox entries. Delays, and times since 1970, are in microseconds; 0 or a
-- list that is too short means none.
with input as (
  select nextval('holdfast.tasks_id_seq') as id, type, queue, payload, max_attempts,
    case
      -- In two parts, because the server multiplies in floating point and would round the end of the year 9999 up.
      when at > 0 then nullif(greatest('epoch'::timestamptz + at / 1000000 * interval '1 second' + at % 1000000 * interval '1 microsecond', now()), now())
      when delay > 0 then now() + delay * interval '1 microsecond'
    end as later
  from unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::bigint[], $6::bigint[])
    as a (type, queue, payload, max_attempts, delay, at)
), queues as (
  -- The caller has stored the queues, but a failover may have lost them since. No janitor would find the tasks of a
  -- queue that is not stored.
  insert into holdfast.queues (name)
  select distinct queue from unnest($2::text[]) as a (queue)
  where not exists (select from holdfast.queues q where q.name = a.queue)
  on conflict do nothing
), stored as (
  insert into holdfast.tasks (id, type, queue, payload, max_attempts, next_run_at, due_at, ticketed_at)
  select id, type, queue, payload::json, max_attempts, coalesce(later, now()), later, case when later is null then now() end
  from input
), entries as (
  insert into holdfast.outbox (queue, task_ids, publish_after)
  select queue, array_agg(id order by id), now() + $7 * interval '1 microsecond'
  from input where later is null group by queue order by queue
  returning id, queue, task_ids
)
-- The first row lists all tasks. The ids ascend in the order of the input.
select 0::bigint as id, '' as queue, array_agg(id order by id) as tasks from input
union all
select id, queue, task_ids from entries
order by id
