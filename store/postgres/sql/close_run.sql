with closed as (
  update holdfast.runs set state = 'stopped', ended_at = now(), running = 0
  where id = $1 and state = 'live'
)
delete from holdfast.cancellations where run_id = $1
