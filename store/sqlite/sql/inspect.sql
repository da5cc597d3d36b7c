-- name: list
select {{listed}} from {{window}} {{filter}} order by tasks.id desc limit ?26

-- name: list_tag
select {{listed}}
from {{tagged}} and g.task_id >= ?11 and g.task_id < ?5
  and {{filter}}
order by g.task_id desc
limit ?26

-- name: list_group
select {{listed}}
from {{grouped}} and d.task_id >= ?11 and d.task_id < ?5
  and tasks.dead_at is not null and {{death}} and {{condition}}
order by d.task_id desc
limit ?26

-- name: list_deaths
select {{listed}}
from {{died}} and d.task_id >= ?11 and d.task_id < ?5
  and tasks.dead_at is not null and {{death}} and {{condition}}
order by d.task_id desc
limit ?26

-- name: last_id
-- The highest id below ?1.
select coalesce(max(id), 0) as id from tasks where id < ?1

-- name: last_id_dead
select coalesce(max(id), 0) as id from tasks indexed by tasks_dead where dead_at is not null and id < ?1

-- name: last_id_tag
select coalesce(max(task_id), 0) as id from tags where tag = ?2 and task_id < ?1

-- name: last_id_key
select coalesce(max(id), 0) as id from tasks where key = ?2 and id < ?1

-- name: last_id_group
select coalesce(max(task_id), 0) as id from deaths indexed by deaths_group where fingerprint = ?2 and task_id < ?1

-- name: last_id_deaths
select coalesce(max(task_id), 0) as id from deaths not indexed where task_id < ?1

-- name: tag_sizes
-- The number of tasks with each of the tags in the JSON list ?1. The maximum is ?2.
select w.value as tag, (select count(*) from (select 1 from tags g where g.tag = w.value limit ?2)) as size
from json_each(?1) as w

-- name: count
select tasks.state, count(*) as count from {{window}} {{filter}} group by tasks.state

-- name: count_tag
select tasks.state, count(*) as count
from {{tagged}} and g.task_id >= ?11 and g.task_id < ?5
  and {{filter}}
group by tasks.state

-- name: count_group
select tasks.state, count(*) as count
from {{grouped}} and d.task_id >= ?11 and d.task_id < ?5
  and tasks.dead_at is not null and {{death}} and {{condition}}
group by tasks.state

-- name: count_deaths
select tasks.state, count(*) as count
from {{died}} and d.task_id >= ?11 and d.task_id < ?5
  and tasks.dead_at is not null and {{death}} and {{condition}}
group by tasks.state

-- name: task
select {{listed}}, {{payload}} from tasks where tasks.id in (select value from json_each(?1))

-- name: task_sizes
-- The bytes of the payloads and of the outputs of the tasks ?1, a JSON array. A long payload is in another table.
select t.id as task, coalesce(octet_length(t.payload), octet_length(p.payload), 0) + coalesce(octet_length(d.value), 0) as bytes
from tasks t left join payloads p on p.task_id = t.id left join task_data d on d.task_id = t.id and d.name = 'output'
where t.id in (select value from json_each(?1))
order by t.id

-- name: attempts
-- A task without attempts has one row, with attempt 0.
select t.id as task, coalesce(a.attempt, 0) as attempt, coalesce(a.event, '') as event,
  coalesce(a.worker_id, 0) as worker, coalesce(a.worker_name, '') as worker_name,
  a.started_at, a.finished_at,
  coalesce(a.class, '') as class, coalesce(a.error, '') as error, coalesce(a.stack, '') as stack,
  coalesce(a.details, '') as details
from tasks t left join attempts a on a.task_id = t.id
where t.id = ?1
order by a.attempt, a.finished_at

-- name: queues
-- Each part reads the counters or a partial index. From the due tasks with a ticket, the statement reads the 1,000 with
-- the oldest tickets: usually, the task that became due first also got its ticket first.
with counted as (
  select queue, sum(iif(state = 'all', n, -n)) as open, sum(iif(state = 'dead', n, 0)) as dead from counts group by queue
), held as (
  select queue, count(*) as n from tasks indexed by tasks_worker where worker_id is not null group by queue
), waiting as (
  select queue, sum(due_at > ?1 and (next_run_at > ?1 or due_at = {{blocked}})) as n,
    min(iif(due_at <= ?1 or next_run_at <= ?1 and due_at <> {{blocked}}, next_run_at, null)) as oldest,
    count(parked) as parked, group_concat(distinct iif(parked is null, null, type)) as parked_types
  from tasks where due_at is not null
  group by queue
), parts as (
  select q.name, q.drained_through, coalesce(c.open, 0) - coalesce(h.n, 0) as ready, coalesce(h.n, 0) as running, coalesce(c.dead, 0) as dead,
    coalesce(w.n, 0) as waiting, coalesce(w.parked, 0) as parked, replace(coalesce(w.parked_types, ''), ',', ' ') as parked_types,
    coalesce(w.oldest, ?1) as oldest, coalesce((
      select min(next_run_at) from (
        select t.next_run_at from tasks t indexed by tasks_ticketed
        where t.queue = q.name and t.ticketed_at is not null order by t.ticketed_at limit 1000
      )
    ), ?1) as ticketed
  from queues q left join counted c on c.queue = q.name left join held h on h.queue = q.name left join waiting w on w.queue = q.name
  where instr(q.name, '/') = 0 -- no type queues, which have no tasks of their own
)
select name, ready, max(ready - waiting, 0) as due, running, dead, parked, parked_types,
  max(?1 - oldest, ?1 - ticketed, 0) as oldest, drained_through
from parts
order by name

-- name: queue_names
select name from queues order by name

-- name: workers
select id, name, host, pid, version, concurrency, queues, types, state, draining,
  started_at, renewed_at, lease_until, ended_at, taken, settled, running, report, settings
from workers
where ?1 or state = 'live'
order by id desc

-- name: type_schemas
-- The schemas of the type ?1. If ?1 is empty, those of all types.
select type, schema, worker_id as worker, updated_at
from type_schemas
where schema is not null and (?1 = '' or type = ?1)
order by type
