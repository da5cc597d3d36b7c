-- The lock waits for claims in flight. One of them that was stored after the run was closed and looked
-- through would be found by nobody.
with live as materialized (
  select id from holdfast.runs where id = $1 and state = 'live' for update
), closed as (
  update holdfast.runs r set state = 'stopped', ended_at = now(), running = 0, swept = $2
  from live
  where r.id = live.id
)
delete from holdfast.cancellations where run_id = $1
