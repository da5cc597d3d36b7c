-- One step over the ids above $1 up to $2. An age of 0 keeps tasks forever. The attempts of a task are deleted with the
-- task. This statement sees all of them, because a task in a final state gets no more attempts.
with picked as (
  select id from holdfast.tasks
  where id > $1 and id <= $2 and (
    $4::bigint > 0 and state = 'done' and finished_at < now() - $4::bigint * interval '1 microsecond'
    or $5::bigint > 0 and state = 'cancelled' and finished_at < now() - $5::bigint * interval '1 microsecond'
    or $6::bigint > 0 and state = 'archived' and finished_at < now() - $6::bigint * interval '1 microsecond'
  )
  order by id
  limit $3
  for update skip locked
), attempts as (
  delete from holdfast.attempts a using picked where a.task_id = picked.id
), deleted as (
  delete from holdfast.tasks t using picked where t.id = picked.id returning t.id
)
select count(*) as changed, coalesce(max(id), 0) as last from deleted
