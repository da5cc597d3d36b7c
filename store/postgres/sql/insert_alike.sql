-- insert.sql for tasks that differ only in their payloads and are due at once, as those of one call mostly are: nothing is
-- looked at twice. The ids grow in the order of the payloads, for these are stored one after the other; a list of them is returned
-- only if it has gaps.
with lanes as (
  insert into holdfast.lanes (name)
  select $1::text where not exists (select from holdfast.lanes l where l.name = $1::text)
  on conflict do nothing
), stored as (
  insert into holdfast.tasks (type, lane, max_attempts, payload, ticketed_at)
  select $2, $1, $3, payload, now() from unnest($4::json[]) as a (payload)
  returning id
)
insert into holdfast.outbox (lane, task_ids, publish_after)
select $1, array_agg(id), now() + $5 * interval '1 microsecond' from stored
returning id, task_ids[1] as first, cardinality(task_ids) as size,
  case when task_ids[cardinality(task_ids)] - task_ids[1] >= cardinality(task_ids) then task_ids end as tasks
