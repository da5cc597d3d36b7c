-- Deletes cancellations that no live worker will read, and at most $2 workers. Only workers that certainly own no tasks
-- are deleted.
with notices as (
  delete from holdfast.cancellations c
  where not exists (select from holdfast.workers w where w.id = c.worker_id and w.state = 'live')
), picked as (
  select id from holdfast.workers
  where state <> 'live' and swept and ended_at < now() - $1 * interval '1 microsecond'
  order by id
  limit $2
  for update skip locked
)
delete from holdfast.workers w using picked where w.id = picked.id
