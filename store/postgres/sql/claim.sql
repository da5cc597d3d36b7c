-- The general statement, for tickets of several attempt numbers. The lock on the worker's row blocks fencing and
-- deregistration, but not renewals. So no claim of a worker can commit after the worker has ended.
with live as materialized (
  select id from holdfast.workers where id = $1 and state = 'live' for key share
), picked as materialized (
  select locked.id
  from (select * from unnest($2::bigint[], $3::int[]) as a (task, attempt) order by task) tickets,
  -- One look-up by id per ticket, in the order of the ids. The planner would choose a join by statistics. In a queue
  -- they are always out of date, so the join could read the whole table.
  lateral (
    select t.id from holdfast.tasks t
    where t.id = tickets.task and t.attempt = tickets.attempt and {{claimable}}
    for update
  ) locked
)
update holdfast.tasks t
set state = 'running', worker_id = $1, started_at = now(), due_at = null, ticketed_at = null, parked = null, buffered = $6
from picked
where t.id = picked.id
returning {{claimed}}, null -- null means started_at
