-- Tasks without unique keys, with their receipts, in one statement. Delays and moments (after 1970) are in
-- microseconds; 0 or a list that is too short means none.
with input as (
  select nextval('holdfast.tasks_id_seq') as id, type, lane, payload, max_attempts,
    case
      -- In two parts: the server multiplies in floating point, which would round the last moments of the year 9999 up.
      when at > 0 then nullif(greatest('epoch'::timestamptz + at / 1000000 * interval '1 second' + at % 1000000 * interval '1 microsecond', now()), now())
      when delay > 0 then now() + delay * interval '1 microsecond'
    end as later
  from unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::bigint[], $6::bigint[])
    as a (type, lane, payload, max_attempts, delay, at)
), lanes as (
  -- They are stored already, unless a failover has lost them since this process saw to it. Without them no task
  -- of theirs would ever be found.
  insert into holdfast.lanes (name)
  select distinct lane from unnest($2::text[]) as a (lane)
  where not exists (select from holdfast.lanes l where l.name = a.lane)
  on conflict do nothing
), stored as (
  insert into holdfast.tasks (id, type, lane, payload, max_attempts, next_run_at, due_at, ticketed_at)
  select id, type, lane, payload::json, max_attempts, coalesce(later, now()), later, case when later is null then now() end
  from input
), receipts as (
  insert into holdfast.outbox (lane, task_ids, publish_after)
  select lane, array_agg(id order by id), now() + $7 * interval '1 microsecond'
  from input where later is null group by lane order by lane
  returning id, lane, task_ids
)
-- The first row lists all tasks: ids grow in the order of the input.
select 0::bigint as id, '' as lane, array_agg(id order by id) as tasks from input
union all
select id, lane, task_ids from receipts
order by id
