-- renewed and before are the times of this renewal and of the previous one. $7 to $9 are the worker's name, host and
-- PID, because after a loss of commits another worker may have the same id. $6 is the cancellations that the worker has
-- received. The statement deletes them and returns the others, even if an earlier renewal has already returned them.
with before as (
  select renewed_at from holdfast.workers where id = $1
), renewed as (
  update holdfast.workers
  set renewed_at = now(), lease_until = now() + $2 * interval '1 microsecond',
      taken = greatest(taken, $3), settled = greatest(settled, $4), running = $5, present = $10
  where id = $1 and state = 'live' and ($7::text = '' or name = $7::text and host = $8::text and pid = $9)
  returning draining, renewed_at
), deleted as (
  delete from holdfast.cancellations where worker_id = $1 and id = any($6::bigint[])
), notices as (
  select id, task_id, attempt from holdfast.cancellations where worker_id = $1 and id <> all($6::bigint[])
)
select draining, {{history}} as history, (extract(epoch from renewed_at) * 1000000)::bigint as renewed,
  (select (extract(epoch from renewed_at) * 1000000)::bigint from before) as before,
  array(select name from holdfast.queues order by name collate "C") as queues,
  array(select id from notices order by id) as news,
  array(select task_id from notices order by id) as tasks,
  array(select attempt from notices order by id) as attempts
from renewed
