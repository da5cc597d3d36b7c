-- name: list
select {{columns}}
from {{window}} {{filter}}
order by t.id desc
limit $19

-- name: list_tag
select {{columns}}
from {{tagged}} and g.task_id >= $11::bigint and g.task_id < $5::bigint
  and {{filter}}
order by g.task_id desc
limit $19

-- name: list_group
select {{columns}}
from {{grouped}} and d.task_id >= $11::bigint and d.task_id < $5::bigint
  and t.dead_at is not null and {{death}} and {{condition}}
order by d.task_id desc
limit $19

-- name: list_deaths
select {{columns}}
from {{died}} and d.task_id >= $11::bigint and d.task_id < $5::bigint
  and t.dead_at is not null and {{death}} and {{condition}}
order by d.task_id desc
limit $19

-- name: last_id
-- The highest id below $1.
select coalesce(max(id), 0) as id from holdfast.tasks where id < $1::bigint

-- name: last_id_dead
select coalesce(max(id), 0) as id from holdfast.tasks where dead_at is not null and id < $1::bigint

-- name: last_id_tag
select coalesce(max(task_id), 0) as id from holdfast.tags where tag = $2 and task_id < $1::bigint

-- name: last_id_group
select coalesce(max(task_id), 0) as id from holdfast.deaths where fingerprint = $2 and task_id < $1::bigint

-- name: last_id_deaths
select coalesce(max(task_id), 0) as id from holdfast.deaths where task_id < $1::bigint

-- name: tag_sizes
-- The number of tasks with each of the tags $1, a JSON list; at most $2.
select w.word as tag, (select count(*) from (select from holdfast.tags g where g.tag = w.word limit $2) g) as size
from json_array_elements_text($1::json) as w (word)

-- name: count
select t.state, count(*) as count
from {{all_tasks}} {{filter}}
group by t.state

-- name: count_tag
select t.state, count(*) as count
from {{tagged}}
  and {{filter}}
group by t.state

-- name: count_group
select t.state, count(*) as count
from {{grouped}}
  and t.dead_at is not null and {{death}} and {{condition}}
group by t.state

-- name: count_deaths
select t.state, count(*) as count
from {{died}}
  and t.dead_at is not null and {{death}} and {{condition}}
group by t.state

-- name: task
select {{columns}}, t.payload from holdfast.tasks t where t.id = any($1::bigint[])

-- name: attempts
-- A task without attempts has one row, with attempt 0.
select t.id as task, coalesce(a.attempt, 0) as attempt, coalesce(a.event, '') as event,
  coalesce(a.worker_id, 0) as worker, coalesce(a.worker_name, '') as worker_name, a.started_at, a.finished_at,
  coalesce(a.class, '') as class, coalesce(a.error, '') as error, coalesce(a.stack, '') as stack,
  coalesce(a.details::text, '') as details
from holdfast.tasks t left join holdfast.attempts a on a.task_id = t.id
where t.id = $1
order by a.attempt, a.finished_at

-- name: queues
with open as (
  select queue,
    count(*) filter (where state = 'ready') as ready,
    count(*) filter (where state = 'ready' and (due_at is null or due_at <= now() or next_run_at <= now())) as due,
    count(*) filter (where state = 'running') as running,
    count(*) filter (where state = 'ready' and parked is not null) as parked,
    string_agg(distinct type collate "C", ' ' order by type collate "C") filter (where state = 'ready' and parked is not null) as parked_types,
    min(next_run_at) filter (where state = 'ready' and (due_at is null or due_at <= now() or next_run_at <= now())) as oldest
  from holdfast.tasks
  where state in ('ready', 'running')
  group by queue
), dead as (
  select queue, count(*) as n from holdfast.tasks where dead_at is not null group by queue
)
select q.name, coalesce(o.ready, 0) as ready, coalesce(o.due, 0) as due, coalesce(o.running, 0) as running,
  coalesce(d.n, 0) as dead, coalesce(o.parked, 0) as parked, coalesce(o.parked_types, '') as parked_types,
  coalesce((extract(epoch from greatest(now() - o.oldest, interval '0')) * 1000000)::bigint, 0) as oldest,
  q.drained_through
from holdfast.queues q left join open o on o.queue = q.name left join dead d on d.queue = q.name
order by q.name collate "C"

-- name: queue_names
select name from holdfast.queues order by name collate "C"

-- name: workers
select id, name, host, pid, version, concurrency, to_json(queues)::text as queues, to_json(types)::text as types, state, draining,
  started_at, renewed_at, lease_until, ended_at, taken, settled, running, report::text as report
from holdfast.workers
where $1 or state = 'live'
order by id desc
