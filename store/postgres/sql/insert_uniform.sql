-- insert.sql for tasks that differ only in their payloads and are due at once. Most calls have such tasks. The ids
-- ascend in the order of the payloads, because the server stores the rows one after another. The statement returns the
-- list of ids only if the list has gaps.
with queues as (
  insert into holdfast.queues (name)
  select $1::text where not exists (select from holdfast.queues q where q.name = $1::text)
  on conflict do nothing
), stored as (
  insert into holdfast.tasks (type, queue, max_attempts, payload, ticketed_at)
  select $2, $1, $3, payload, now() from unnest($4::json[]) as a (payload)
  returning id
)
insert into holdfast.outbox (queue, task_ids, publish_after)
select $1, array_agg(id), now() + $5 * interval '1 microsecond' from stored
returning id, task_ids[1] as first, cardinality(task_ids) as size,
  case when task_ids[cardinality(task_ids)] - task_ids[1] >= cardinality(task_ids) then task_ids end as tasks
