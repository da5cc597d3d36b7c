-- name: claim_range
-- The variant of claim for tickets of one attempt number, if there are no gates. It needs no join with locked rows. It
-- scans each range of ids from $8 to $9 instead of descending the index for each id. The bits of $2 from $10 on say
-- which ids are in the set. If another transaction changes a row, the server checks the conditions again before it
-- updates the row.
{{claim_first}}
where t.id between id_range.first and id_range.last and get_bit($2::bytea, (t.id - id_range.first)::int + id_range.start) = 1
  and t.attempt = (select $3::int) and {{claimable}}
returning {{claimed}}

-- name: claim_range_gated
-- The variant of claim_range if there are gates. It looks up each id. For a scan of ranges, the planner would expect to
-- check the gates for many rows. It would then plan each execution again, to find a cheaper plan. The server would also
-- plan one statement for both cases each time.
{{claim_first}}, generate_series(id_range.first, id_range.last) as ticket (id)
where t.id = ticket.id and get_bit($2::bytea, (ticket.id - id_range.first)::int + id_range.start) = 1
  and t.attempt = (select $3::int) and {{claimable}} and {{unchanged}} and not exists (select from {{closed_gates}})
returning {{claimed}}, {{probe}}

-- name: claim
-- Claims tickets of several attempt numbers. The lock on the worker's row blocks fencing and deregistration, but not
-- renewals. So no claim of a worker can commit after the worker has ended. $7 is whether there are gates. The statement
-- claims nothing if $8 is not the epoch of the gates.
with live as materialized (
  select id from holdfast.workers where id = $1 and state = 'live' and gate_epoch = $8 for key share
), picked as materialized (
  select locked.id
  from (select * from unnest($2::bigint[], $3::int[]) as a (task, attempt) order by task) tickets,
  -- One look-up by id per ticket, in the order of the ids. The planner would choose a join by statistics. In a queue
  -- they are always out of date, so the join could read the whole table.
  lateral (
    select t.id from holdfast.tasks t
    where t.id = tickets.task and t.attempt = tickets.attempt and {{claimable}}
      and (not $7::bool or {{unchanged}} and not exists (select from {{closed_gates}}))
    for update
  ) locked
)
update holdfast.tasks t
set state = 'running', worker_id = $1, started_at = now(), due_at = null, ticketed_at = null, parked = null, buffered = $6
from picked
where t.id = picked.id
returning {{claimed}}, case when $7::bool then {{probe}} end

-- name: claim_refused
-- The state of the tasks that were not claimed, in the order of the tickets. The statement compares due times with
-- clock_timestamp(), because a task may have become ready after now(), the start of the statement. gate is a closed
-- gate that applies to the task, or 0.
select coalesce(t.id, 0) as id, coalesce(t.type, '') as type, coalesce(t.queue, '') as queue,
  coalesce(t.state, '') as state, coalesce(t.attempt, 0) as attempt, coalesce(t.worker_id, 0) as worker_id,
  coalesce(t.due_at > clock_timestamp() and (t.next_run_at > clock_timestamp() or t.due_at = {{blocked}}), false) as waits,
  coalesce(t.crashes, 0) as crashes,
  coalesce((select g.id from {{closed_gates}} order by {{gate_order}} limit 1), 0) as gate,
  exists (select from holdfast.workers where id = $1 and state = 'live') as live,
  coalesce((select gate_epoch from holdfast.workers where id = $1), 0) as epoch,
  exists (select from holdfast.gates where lifted_at is null) as gated,
  now() as now
from unnest((select $2::bigint[]), (select $3::int[])) with ordinality as tickets (task, attempt, n) -- in subqueries, as in claim_first
left join holdfast.tasks t on t.id = tickets.task
order by n

-- name: claim_held
-- The tasks that this worker has already claimed.
select {{claimed}}, {{probe}}, now(), coalesce(t.buffered, false)
from unnest($2::bigint[], $3::int[]) as tickets (task, attempt)
join holdfast.tasks t on t.id = tickets.task and t.attempt = tickets.attempt
where t.worker_id = $1 and t.state = 'running'

-- name: held
-- Reads the ids above $1 up to $2. There is no index of running tasks, because every claim would have to update it.
select {{columns}}
from holdfast.tasks t
where t.id > $1 and t.id <= $2 and t.state = 'running' and t.worker_id = $3
