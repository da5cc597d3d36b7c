-- name: list
select {{listed}}
from {{window}} {{filter}}
order by t.id desc
limit $26

-- name: list_tag
select {{listed}}
from {{tagged}} and g.task_id >= $11::bigint and g.task_id < $5::bigint
  and {{filter}}
order by g.task_id desc
limit $26

-- name: list_group
select {{listed}}
from {{grouped}} and d.task_id >= $11::bigint and d.task_id < $5::bigint
  and t.dead_at is not null and {{death}} and {{condition}}
order by d.task_id desc
limit $26

-- name: list_deaths
select {{listed}}
from {{died}} and d.task_id >= $11::bigint and d.task_id < $5::bigint
  and t.dead_at is not null and {{death}} and {{condition}}
order by d.task_id desc
limit $26

-- name: list_running
with {{recorded}}, {{running_ids}}
select {{listed}}
from {{running_tasks}} {{filter}}
order by t.id desc
limit $26

-- name: count_running
with {{recorded}}, {{running_ids}}
select t.state, count(*) as count
from {{running_tasks}} {{filter}}
group by t.state

-- name: last_id
-- The highest id below $1.
select coalesce(max(id), 0) as id from holdfast.tasks where id < $1::bigint

-- name: last_id_dead
select coalesce(max(id), 0) as id from holdfast.tasks where dead_at is not null and id < $1::bigint

-- name: last_id_tag
select coalesce(max(task_id), 0) as id from holdfast.tags where tag = $2 and task_id < $1::bigint

-- name: last_id_key
select coalesce(max(task_id), 0) as id from holdfast.keys where key = $2 and task_id < $1::bigint

-- name: last_id_group
select coalesce(max(task_id), 0) as id from holdfast.deaths where fingerprint = $2 and task_id < $1::bigint

-- name: last_id_deaths
select coalesce(max(task_id), 0) as id from holdfast.deaths where task_id < $1::bigint

-- name: tag_sizes
-- The number of tasks with each of the tags in the JSON list $1. The maximum is $2.
select w.word as tag, (select count(*) from (select from holdfast.tags g where g.tag = w.word limit $2) g) as size
from json_array_elements_text($1::json) as w (word)

-- name: count
select t.state, count(*) as count
from {{window}} {{filter}}
group by t.state

-- name: count_tag
select t.state, count(*) as count
from {{tagged}} and g.task_id >= $11::bigint and g.task_id < $5::bigint
  and {{filter}}
group by t.state

-- name: count_group
select t.state, count(*) as count
from {{grouped}} and d.task_id >= $11::bigint and d.task_id < $5::bigint
  and t.dead_at is not null and {{death}} and {{condition}}
group by t.state

-- name: count_deaths
select t.state, count(*) as count
from {{died}} and d.task_id >= $11::bigint and d.task_id < $5::bigint
  and t.dead_at is not null and {{death}} and {{condition}}
group by t.state

-- name: task
select {{listed}}, t.payload from holdfast.tasks t where t.id = any($1::bigint[])

-- name: task_sizes
-- The bytes of the payloads and of the outputs of the tasks $1.
select t.id as task, coalesce(octet_length(t.payload::text), 0) + coalesce(octet_length(d.value::text), 0) as bytes
from holdfast.tasks t left join holdfast.task_data d on d.task_id = t.id and d.name = 'output'
where t.id = any($1::bigint[])
order by t.id

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
-- The age of the oldest due task is exact in a store of at most 10,000 tasks. In a larger one it is a bound: the queue
-- has delivered every ticket that was published before drained_through.
with {{recorded}}, {{running_ids}}, running as (
  select t.queue, count(*) as n
  from {{running_by_id}}
  where r.live or t.state = 'running'
  group by 1
), counted as (
  select queue, coalesce(sum(n) filter (where state = 'all'), 0) - coalesce(sum(n) filter (where state <> 'all'), 0) as open,
    coalesce(sum(n) filter (where state = 'dead'), 0) as dead
  from recorded group by 1
), waiting as (
  -- A parked task is nearly always in this index.
  select queue, count(*) filter (where due_at > now() and (next_run_at > now() or due_at = {{blocked}})) as n,
    min(next_run_at) filter (where due_at <= now() or next_run_at <= now() and due_at <> {{blocked}}) as oldest, count(parked) as parked,
    string_agg(distinct type collate "C", ' ' order by type collate "C") filter (where parked is not null) as parked_types
  from holdfast.tasks where due_at is not null
  group by 1
), ticketed as (
  select queue, min(next_run_at) as oldest from holdfast.tasks
  where (select n from size) <= 10000 and state = 'ready' and due_at is null
  group by 1
), parts as (
  select q.name, q.drained_through, least(coalesce(r.n, 0), c.open) as running, c.open - least(coalesce(r.n, 0), c.open) as ready,
    coalesce(c.dead, 0) as dead, coalesce(w.n, 0) as waiting, coalesce(w.parked, 0) as parked, coalesce(w.parked_types, '') as parked_types,
    least(w.oldest, case when (select n from size) <= 10000 then t.oldest else coalesce(q.drained_through, q.created_at) end) as oldest
  from holdfast.queues q left join counted c on c.queue = q.name left join running r on r.queue = q.name
    left join waiting w on w.queue = q.name left join ticketed t on t.queue = q.name
  where strpos(q.name, '/') = 0 -- no type queues, which have no tasks of their own
)
select name, coalesce(ready, 0)::bigint as ready, greatest(coalesce(ready, 0) - waiting, 0)::bigint as due, coalesce(running, 0)::bigint as running,
  dead::bigint, parked, parked_types,
  case when ready > waiting then coalesce((extract(epoch from greatest(now() - oldest, interval '0')) * 1000000)::bigint, 0) else 0 end as oldest,
  drained_through
from parts
order by name collate "C"

-- name: queue_names
select name from holdfast.queues order by name collate "C"

-- name: workers
select id, name, host, pid, version, concurrency, to_json(queues)::text as queues, to_json(types)::text as types, state, draining,
  started_at, renewed_at, lease_until, ended_at, taken, settled, running, report::text as report, settings::text as settings
from holdfast.workers
where $1 or state = 'live'
order by id desc

-- name: type_schemas
-- The schemas of the type $1. If $1 is empty, those of all types.
select type, schema, worker_id as worker, updated_at
from holdfast.type_schemas
where schema is not null and ($1 = '' or type = $1)
order by type collate "C"
