-- name: add_queues
insert into holdfast.queues (name, created_at)
select a.name, {{now}} from {{list(a.name, $1::text[])}} where true
on conflict (name) do nothing

-- name: parked
-- One step over the tasks that become due within $1 microseconds, in the order of (due_at, id), after ($2, $3). It reads
-- at most $4 tasks and returns the parked ones of the types $5 and the queues $6, and the last one if there may be more.
select id, due, n, found
from (
  select t.id, {{micros(t.due_at)}} as due, row_number() over (order by t.due_at, t.id) as n,
    t.parked is not null and t.state = 'ready' and t.type {{in($5::text[])}} and ({{none($6::text[])}} or {{queue(t.queue)}} {{in($6::text[])}}) as found
  from holdfast.tasks t
  where t.due_at > {{now}} and t.due_at <= {{now}} + {{span($1::bigint)}}
    and t.due_at >= {{at($2::bigint)}} and (t.due_at > {{at($2::bigint)}} or t.id > $3::bigint)
  order by t.due_at, t.id
  limit $4
) scanned
where found or n = $4

-- name: unpark
-- Makes the tasks $1 due at once that are still parked. They keep the reason, which shows that the store has computed
-- their times; see correct_tasks. Their next wait is a first one again.
with locked as (
  select id from holdfast.tasks
  where id {{in($1::bigint[])}} and state = 'ready' and parked is not null and due_at > {{now}} and due_at < {{blocked}}
  order by id {{lock}}
)
update holdfast.tasks as t set due_at = {{now}}, next_run_at = {{now}}, park_count = 0
from locked
where t.id = locked.id
