-- The lock waits for claims in progress. If a claim committed after the worker had ended and its tasks had been
-- searched, no janitor would find the claimed task.
with live as materialized (
  select id from holdfast.workers where id = $1 and state = 'live' for update
), closed as (
  update holdfast.workers w set state = 'stopped', ended_at = now(), running = 0, swept = $2
  from live
  where w.id = live.id
)
delete from holdfast.cancellations where worker_id = $1
