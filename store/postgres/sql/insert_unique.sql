-- The same as insert.sql for tasks of which some have a unique key. Where it is taken, also by an
-- earlier task of the same call, nothing is stored.
with input as (
  select nextval('holdfast.tasks_id_seq') as id, type, lane, payload, max_attempts, nullif(unique_key, '') as unique_key,
    case
      -- In two parts: the server multiplies in floating point, which would round the last moments of the year 9999 up.
      when at > 0 then nullif(greatest('epoch'::timestamptz + at / 1000000 * interval '1 second' + at % 1000000 * interval '1 microsecond', now()), now())
      when delay > 0 then now() + delay * interval '1 microsecond'
    end as later
  from unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::bigint[], $6::bigint[], $8::text[])
    as a (type, lane, payload, max_attempts, delay, at, unique_key)
), lanes as (
  -- They are stored already, unless a failover has lost them since this process saw to it. Without them no task
  -- of theirs would ever be found.
  insert into holdfast.lanes (name)
  select distinct lane from unnest($2::text[]) as a (lane)
  where not exists (select from holdfast.lanes l where l.name = a.lane)
  on conflict do nothing
), stored as (
  insert into holdfast.tasks (id, type, lane, payload, max_attempts, unique_key, next_run_at, due_at, ticketed_at)
  select id, type, lane, payload::json, max_attempts, unique_key, coalesce(later, now()), later, case when later is null then now() end
  from input
  -- Callers that wait for each other's keys do so in one order.
  order by unique_key collate "C" nulls first, id
  on conflict (unique_key) where unique_key is not null do nothing
  returning id, lane, due_at
), receipts as (
  insert into holdfast.outbox (lane, task_ids, publish_after)
  select lane, array_agg(id order by id), now() + $7 * interval '1 microsecond'
  from stored where due_at is null group by lane order by lane
  returning id, lane, task_ids
)
-- The first row lists the tasks that were stored, the second one all.
select -1::bigint as id, '' as lane, coalesce(array_agg(id), '{}') as tasks from stored
union all
select 0, '', array_agg(id order by id) from input
union all
select id, lane, task_ids from receipts
order by id
