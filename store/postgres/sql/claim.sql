-- The general statement, for tickets of several attempt numbers. The run's row is locked against fencing and closing,
-- but not against its own renewals. So a run that is over has no task that it took later.
with live as materialized (
  select id from holdfast.runs where id = $1 and state = 'live' for key share
), picked as materialized (
  select locked.id
  from (select * from unnest($2::bigint[], $3::int[]) as a (task, attempt) order by task) asked,
  -- One look-up by id per ticket, in their order. A join here would be planned by statistics,
  -- which in a queue are always out of date, and end in reading the whole table.
  lateral (
    select t.id from holdfast.tasks t
    where t.id = asked.task and t.attempt = asked.attempt and {{claimable}}
    for update
  ) locked
)
update holdfast.tasks t
set state = 'running', run_id = $1, started_at = now(), due_at = null, ticketed_at = null, parked = null, buffered = $6
from picked
where t.id = picked.id
returning {{claimed}}, null -- which is when it was started
