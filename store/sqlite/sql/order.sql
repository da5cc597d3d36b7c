-- The last parameter of each statement is the present time.

-- name: order_lock
-- Stores the keys ?1, and returns their states. No other transaction can write now.
insert into key_order (key) select value from json_each(?1) where true
on conflict (key) do update set key = excluded.key
returning key, active is not null as active, dead > 0 as dead,
  dead = 2 and coalesce((select t.state = 'dead' from tasks t where t.id = active), 0) as doomed, exists (select 1 from key_waits w where w.key = key_order.key) as waiting

-- name: order_skip_lock
-- The keys of ?1 that exist.
select key, coalesce(active, 0) as active, dead from key_order where key in (select value from json_each(?1))

-- name: order_open
-- The keys of ?1 that have open ordered tasks.
select value as key from json_each(?1)
where exists (select 1 from key_order o where o.key = value) or exists (select 1 from key_waits w where w.key = value)

-- name: order_waiting
-- The keys of ?1 in which tasks wait.
select value as key from json_each(?1) where exists (select 1 from key_waits w where w.key = value)

-- name: order_check
insert into key_checks (key) select value from json_each(?1)

-- name: order_judge
-- The active tasks of the keys ?1.
select o.key, coalesce(t.state, '') as state, coalesce(t.ordered, 0) as mark,
  exists (select 1 from key_waits w where w.key = o.key and w.task_id = o.active) as waits
from json_each(?1) as l join key_order o on o.key = l.value left join tasks t on t.id = o.active

-- name: order_start
-- Starts the first ?3 waiting tasks of each of the keys ?1, and gives them the mark ?2. It skips tasks that no longer
-- wait. A task without a delay is due at once, even if its next_run_at is in the future because the clock was set back.
-- A due task is treated as ticketed if an outbox entry can contain it. Such an entry has only tickets of first
-- attempts. A task with a topic becomes due and then waits for a slot. ?4 is the present time.
update tasks
set due_at = iif(tasks.next_run_at > ?4 and tasks.next_run_at > tasks.created_at, tasks.next_run_at, iif(tasks.attempt = 1 and tasks.topic is null, null, ?4)),
  ticketed_at = iif((tasks.next_run_at <= ?4 or tasks.next_run_at <= tasks.created_at) and tasks.attempt = 1 and tasks.topic is null, ?4, null),
  next_run_at = iif(tasks.next_run_at <= tasks.created_at, min(tasks.next_run_at, ?4), tasks.next_run_at),
  ordered = ?2
from json_each(?1) as l
  cross join key_waits w on w.key = l.value
where tasks.id = w.task_id and tasks.state = 'ready' and +tasks.due_at = {{blocked}}
  and w.task_id in (select first.task_id from key_waits first where first.key = l.value order by first.task_id limit ?3)
returning tasks.key, tasks.id, tasks.queue, tasks.ticketed_at is not null as ticketed

-- name: order_entry
-- Stores an outbox entry for the tasks ?2 of the queue ?1. It is due at once. ?3 is the present time.
insert into outbox (queue, task_ids, created_at, publish_after) values (?1, ?2, ?3, ?3)

-- name: order_started
-- Deletes the rows of the tasks ?2 of the keys ?1, which order_start has returned. If ?3 is true, the tasks become the
-- active ones.
update key_order set active = ?2 ->> l.key, dead = 0 from json_each(?1) as l where ?3 and key_order.key = l.value;

delete from key_waits where (key, task_id) in (select value, ?2 ->> key from json_each(?1))

-- name: order_end
-- Deletes the keys of ?1 in which no task waits, and returns them.
delete from key_order
where key in (select value from json_each(?1)) and not exists (select 1 from key_waits w where w.key = key_order.key)
returning key

-- name: order_forget
-- Deletes the rows of tasks that no longer wait, among the first hundred of each of the keys ?1.
delete from key_waits
where (key, task_id) in (
  select l.value, w.task_id from json_each(?1) as l cross join key_waits w on w.key = l.value
  where w.task_id in (select first.task_id from key_waits first where first.key = l.value order by first.task_id limit 100)
)
  and not exists (select 1 from tasks t where t.id = key_waits.task_id and t.state = 'ready' and +t.due_at = {{blocked}})

-- name: order_dead
-- Sets the effect of the dead active tasks of the keys ?1; see deathOf.
update key_order set dead = ?2 where key in (select value from json_each(?1))

-- name: order_checks
-- The first ?1 keys to check.
select id, key from key_checks order by id limit ?1

-- name: order_checked
delete from key_checks where id in (select value from json_each(?1))

-- name: order_create
-- Stores at most ?1 keys that have waiting tasks but no row, among the first keys to check.
insert into key_order (key)
select distinct c.key from (select key from key_checks order by id limit 1000) as c
where not exists (select 1 from key_order o where o.key = c.key) and exists (select 1 from key_waits w where w.key = c.key)
limit ?1
on conflict do nothing

-- name: order_wait
-- Does nothing: a file has one writer at a time, so order_create waits for no other transaction.
select 1

-- name: order_sweep_add
-- Adds keys whose active task has ended or died to the keys to check. The keys are after ?1 and, unless ?2 is empty, up
-- to ?2. Builds without ordered tasks end such tasks without a check of their keys.
insert into key_checks (key)
select o.key from key_order o left join tasks t on t.id = o.active
where o.key > ?1 and (?2 = '' or o.key <= ?2)
  and (t.state is null or t.state not in ('ready', 'running', 'dead') or t.state = 'dead' and (
    t.ordered = 3 or o.dead = 0 or o.dead = 2 and exists (select 1 from key_waits w where w.key = o.key)
  ))

-- name: order_sweep
-- The last of the next ?2 keys after ?1, or '' if there are no more keys.
select coalesce((select max(key) from (select key from key_order where key > ?1 order by key limit ?2) having count(*) = ?2), '') as last

-- name: order_of
-- The place of the ordered task ?1 in its key.
select {{ordered_key}}, coalesce(o.active = s.id, 0) as first,
  (select count(*) from (select 1 from key_waits w where w.key = o.key and w.task_id < s.id limit {{counted}})) as ahead
from tasks s
join key_order o on o.key = s.key
left join tasks t on t.id = o.active
where s.id = ?1 and s.ordered is not null
  and (o.active = s.id or exists (select 1 from key_waits w where w.key = s.key and w.task_id = s.id))

-- name: ordered_keys
-- At most ?2 keys whose active task is dead. If ?1 is false, at most ?2 other keys with waiting tasks follow, in the
-- order of the keys. The recursion reads one row for each key.
with recursive waiting as (
  select min(key) as key from key_waits
  union all
  select (select min(n.key) from key_waits n where n.key > w.key) from waiting w where w.key is not null
)
select * from (
  select {{ordered_key}}
  from key_order o join tasks t on t.id = o.active and t.state = 'dead'
  where o.dead > 0
  order by o.key
  limit ?2
)
union all
select * from (
  select {{ordered_key}}
  from waiting w cross join key_order o on o.key = w.key and o.dead = 0 left join tasks t on t.id = o.active
  where not ?1
  limit ?2
)
