-- name: order_lock
-- Locks the keys $1, which are sorted and distinct, until the end of the transaction. A returned row has data of other
-- rows, which may be older than the lock.
insert into holdfast.key_order as o (key)
select key from unnest($1::text[]) with ordinality as k (key, n) order by n
on conflict (key) do update set key = excluded.key
returning o.key, o.active is not null as active, o.dead > 0 as dead, {{dooms}} as doomed,
  exists (select from holdfast.key_waits w where w.key = o.key) as waiting

-- name: order_skip_lock
-- Locks the keys of $1 that exist and that no other transaction has locked.
select key, coalesce(active, 0) as active, dead from holdfast.key_order where key = any($1::text[]) order by key for update skip locked

-- name: order_open
-- The keys of $1 that have open ordered tasks.
select k.key from unnest($1::text[]) as k (key)
where exists (select from holdfast.key_order o where o.key = k.key) or exists (select from holdfast.key_waits w where w.key = k.key)

-- name: order_waiting
-- The keys of $1 in which tasks wait.
select l.key from unnest($1::text[]) as l (key) where exists (select from holdfast.key_waits w where w.key = l.key)

-- name: order_check
insert into holdfast.key_checks (key) select unnest($1::text[])

-- name: order_judge
-- The active tasks of the keys $1.
select o.key, coalesce(t.state, '') as state, coalesce(t.ordered, 0) as mark,
  coalesce((select true from holdfast.key_waits w where w.key = o.key and w.task_id = o.active), false) as waits
from unnest($1::text[]) as l (key)
join holdfast.key_order o on o.key = l.key
left join lateral (select state, ordered from holdfast.tasks where id = o.active) t on true

-- name: order_start
-- Starts the first $3 waiting tasks of each of the keys $1, and gives them the mark $2. It skips tasks that no longer
-- wait, and tasks that another transaction has locked. A task without a delay is due at once, even if its next_run_at
-- is in the future because the clock was set back. A due task is treated as ticketed if an outbox entry can contain it.
-- Such an entry has only tickets of first attempts. A task with a topic becomes due and then waits for a slot. See
-- dispatch_due_mark about ticket_scan.
with scan as materialized (
  select through from holdfast.ticket_scan for share
), picked as materialized (
  select l.key, t.id, t.later, not t.later and t.attempt = 1 and t.topic is null as ticketed
  from unnest($1::text[]) as l (key),
  lateral (select task_id from holdfast.key_waits where key = l.key order by task_id limit $3) w,
  lateral ( -- one look-up by id; see claim
    select id, attempt, topic, next_run_at > now() and next_run_at > created_at as later from holdfast.tasks
    where id = w.task_id and state = 'ready' and due_at = {{blocked}}
    for update skip locked
  ) t
  where $2::int = 1 or coalesce(( -- a person may have retried the dead task
    select a.state = 'dead' from holdfast.key_order o join holdfast.tasks a on a.id = o.active where o.key = l.key
  ), false)
), started as (
  update holdfast.tasks t
  set due_at = case when p.later then t.next_run_at when not p.ticketed then now() end, ticketed_at = case when p.ticketed then clock_timestamp() end,
    next_run_at = case when p.later then t.next_run_at else least(t.next_run_at, now()) end, ordered = $2
  from picked p
  where t.id = p.id
  returning p.key, t.id, t.queue, p.ticketed
), listed as (
  insert into holdfast.ticketed_blocks (block)
  select distinct (id - 1) / {{block_size}} from started where ticketed and id <= (select through from scan) order by 1
  on conflict do nothing
)
select key, id, queue, ticketed from started order by id

-- name: order_entry
-- Stores an outbox entry for the tasks $2 of the queue $1. It is due at once.
insert into holdfast.outbox (queue, task_ids, publish_after) values ($1, $2::bigint[], now())

-- name: order_started
-- Deletes the rows of the tasks $2 of the keys $1, which order_start has returned. If $3 is true, the tasks become the
-- active ones.
with listed as materialized (
  select * from unnest($1::text[], $2::bigint[]) as l (key, task)
), active as (
  update holdfast.key_order o set active = l.task, dead = 0 from listed l where $3 and o.key = l.key
)
delete from holdfast.key_waits w using listed l where w.key = l.key and w.task_id = l.task

-- name: order_end
-- Deletes the keys of $1 in which no task waits, and returns them.
delete from holdfast.key_order o
where o.key = any($1::text[]) and coalesce((select false from holdfast.key_waits w where w.key = o.key limit 1), true)
returning o.key

-- name: order_forget
-- Deletes the rows of tasks that no longer wait, among the first hundred of each of the keys $1. Another transaction
-- may be changing the other tasks.
delete from holdfast.key_waits w
using unnest($1::text[]) as l (key), lateral (select task_id from holdfast.key_waits where key = l.key order by task_id limit 100) f
where w.key = l.key and w.task_id = f.task_id
  and coalesce((select t.state <> 'ready' or t.due_at is distinct from {{blocked}} from holdfast.tasks t where t.id = w.task_id), true)

-- name: order_dead
-- Sets the effect of the dead active tasks of the keys $1; see deathOf.
update holdfast.key_order set dead = $2 where key = any($1::text[])

-- name: order_checks
-- The first $1 keys to check.
select id, key from holdfast.key_checks order by id limit $1 for update skip locked

-- name: order_checked
delete from holdfast.key_checks where id = any($1::bigint[])

-- name: order_create
-- Stores at most $1 keys that have waiting tasks but no row, among the first keys to check. If another transaction is
-- storing one of them, the statement waits for it.
insert into holdfast.key_order (key)
select key from (
  select distinct c.key from (select key from holdfast.key_checks order by id limit 1000) c
  where not exists (select from holdfast.key_order o where o.key = c.key) and exists (select from holdfast.key_waits w where w.key = c.key)
) missing
order by random()
limit $1
on conflict do nothing

-- name: order_wait
set local lock_timeout = '50ms'

-- name: order_sweep_add
-- Adds keys whose active task has ended or died to the keys to check. The keys are after $1 and, unless $2 is empty, up
-- to $2. Builds without ordered tasks end such tasks without a check of their keys.
insert into holdfast.key_checks (key)
select o.key
from holdfast.key_order o left join lateral (select state, ordered from holdfast.tasks where id = o.active) t on true
where o.key > $1 and ($2 = '' or o.key <= $2)
  and (t.state is null or t.state not in ('ready', 'running', 'dead') or t.state = 'dead' and (
    t.ordered = 3 or o.dead = 0 or o.dead = 2 and exists (select from holdfast.key_waits w where w.key = o.key)
  ))

-- name: order_sweep
-- The last of the next $2 keys after $1, or '' if there are no more keys.
select coalesce((
  select max(key) from (select o.key from holdfast.key_order o where o.key > $1 order by o.key limit $2) part having count(*) = $2
), '') as last

-- name: order_of
-- The place of the ordered task $1 in its key.
select {{ordered_key}}, coalesce(o.active = s.id, false) as first,
  (select count(*) from (select from holdfast.key_waits w where w.key = o.key and w.task_id < s.id limit {{counted}}) counted) as ahead
from holdfast.tasks s
join holdfast.key_order o on o.key = s.key
left join holdfast.tasks t on t.id = o.active
where s.id = $1 and s.ordered is not null
  and (o.active = s.id or exists (select from holdfast.key_waits w where w.key = s.key and w.task_id = s.id))

-- name: ordered_keys
-- At most $2 keys whose active task is dead. If $1 is false, at most $2 other keys with waiting tasks follow, in the
-- order of the keys. The recursion reads one row for each key.
with recursive waiting as (
  select min(key) as key from holdfast.key_waits
  union all
  select (select min(n.key) from holdfast.key_waits n where n.key > w.key) from waiting w where w.key is not null
)
(
  select {{ordered_key}}
  from holdfast.key_order o join holdfast.tasks t on t.id = o.active and t.state = 'dead'
  where o.dead > 0
  order by o.key
  limit $2
)
union all
(
  select {{ordered_key}}
  from waiting w join holdfast.key_order o on o.key = w.key and o.dead = 0 left join holdfast.tasks t on t.id = o.active
  where not $1
  limit $2
)
