-- Renewed and before are the times of this renewal and of the one that the store knows.
-- $7 to $9 are the run's name, host and PID, to tell it from another one that was given its id. $6 lists the news the run has heard: they are deleted, the others are told, again if need be.
with before as (
  select renewed_at from holdfast.runs where id = $1
), renewed as (
  update holdfast.runs
  set renewed_at = now(), lease_until = now() + $2 * interval '1 microsecond',
      taken = greatest(taken, $3), settled = greatest(settled, $4), running = $5, shown = $10
  where id = $1 and state = 'live' and ($7::text = '' or name = $7::text and host = $8::text and pid = $9)
  returning draining, renewed_at
), deleted as (
  delete from holdfast.cancellations where run_id = $1 and id = any($6::bigint[])
), news as (
  select id, task_id, attempt from holdfast.cancellations where run_id = $1 and id <> all($6::bigint[])
)
select draining, {{history}} as history, (extract(epoch from renewed_at) * 1000000)::bigint as renewed,
  (select (extract(epoch from renewed_at) * 1000000)::bigint from before) as before,
  array(select name from holdfast.lanes order by name collate "C") as lanes,
  array(select id from news order by id) as news,
  array(select task_id from news order by id) as tasks,
  array(select attempt from news order by id) as attempts
from renewed
