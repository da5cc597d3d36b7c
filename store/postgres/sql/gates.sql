-- name: gates_settings
-- While a change of the gates locks the rows of workers, renewals and new workers wait. So both times are limited, even
-- if the process that makes the change is frozen.
set local lock_timeout = '1s';
set local idle_in_transaction_session_timeout = '1s'

-- name: gates_change
-- Begins a change of the gates: from now on, claims that know only the old gates are refused. The lock on the row waits
-- for workers that register, so that the statement sees their rows. It must be the first statement of its transaction.
update holdfast.gate_epoch set epoch = floor(random() * 9007199254740991)::bigint

-- name: gates_changed
-- Ends the change. Renewals wait until the commit.
update holdfast.workers set gate_epoch = (select epoch from holdfast.gate_epoch)
where state = 'live'

-- name: gates_of
-- The first closed gate of each ready task of $1 that has a closed gate.
select t.id as task, {{gate}}, 0 as blocked
from holdfast.tasks t, lateral (select g.* from {{closed_gates}} order by {{gate_order}} limit 1) g
where t.id = any($1::bigint[]) and t.state = 'ready'

-- name: blocked_by_queue
-- The number of tasks in each subqueue that closed gates or dead ordered tasks block, and for how many microseconds the
-- oldest of them has been due. It reads at most $1 rows. The rows that are outdated have the queue ''. The subquery looks
-- up each task by its id. With an equals sign instead, a server that plans the statement while the table is empty would
-- choose the index of due_at, and read all blocked tasks for each task.
select coalesce(found.queue, '') as queue, count(*) as tasks,
  coalesce((extract(epoch from greatest(now() - min(found.next_run_at), interval '0')) * 1000000)::bigint, 0) as oldest
from (
  select b.task_id, b.attempt
  from holdfast.gates g join holdfast.blocked b on b.gate_id = g.id
  where g.lifted_at is null and (g.until is null or g.until > now())
  union all
  select w.task_id, null
  from holdfast.key_order o, lateral (select task_id from holdfast.key_waits where key = o.key offset 0) w
  where o.dead > 0 and o.dead = 1
  limit $1
) listed left join lateral (
  select t.queue, t.next_run_at from holdfast.tasks t
  where t.id = listed.task_id and t.attempt = coalesce(listed.attempt, t.attempt) and t.state = 'ready' and t.due_at is not distinct from {{blocked}}
  offset 0
) found on true
group by found.queue

-- name: gates_open
-- expired: gates have passed their time; $1 is that of gates_expired. lifted: tasks may have to be released. limited:
-- there are buckets or permits. permits: there are permits. freed: a task of $2 has a permit. unchecked: keys of
-- ordered tasks need a check. topical: tasks wait for slots. open: tasks with topics are open. used: tasks with topics
-- were stored at some time. A bucket in which a worker has just blocked a task needs a check now.
select
  exists (select from holdfast.gates g where g.lifted_at is null and g.until <= now())
    or exists (select from holdfast.gates g where g.lifted_at is null and {{forgotten}}) as expired,
  exists (select from holdfast.gates g where g.lifted_at is not null) as lifted,
  exists (select from holdfast.buckets) or exists (select from holdfast.bucket_arrivals) or exists (select from holdfast.permits) as limited,
  exists (select from holdfast.permits) as permits,
  exists (select from unnest((select $2::bigint[])) as a (task) where exists (select from holdfast.permits where task_id = a.task)) as freed,
  exists (select from holdfast.key_checks) as unchecked,
  exists (select from holdfast.topic_arrivals) or exists (select from holdfast.topic_turns) as topical,
  exists (select from holdfast.topic_tasks) or (select stored < sampled from holdfast.topic_state) as open,
  (select looked_at > '-infinity' from holdfast.topic_state) as used,
  case when exists (select from holdfast.bucket_arrivals) then 0 else next_bucket.after end as after, next_bucket.waiting
from (select {{next_bucket}}) next_bucket

-- name: block
-- Blocks tasks at the gate $3. If the gate has opened, the tasks become due instead. The lock on the gate only delays
-- gates_delete, so that a release finds the tasks. It does not delay changes of the gate.
with closed as materialized (
  select id, kind from holdfast.gates
  where id = $3 and lifted_at is null and (until is null or until > now())
  for key share
), picked as materialized (
  select t.id, t.attempt, t.type, t.key, t.payload
  from (select distinct * from unnest((select $1::bigint[]), (select $2::int[])) as a (task, attempt) order by task) tickets,
  lateral ( -- one look-up by id; see claim
    select id, attempt, type, key, payload from holdfast.tasks
    where id = tickets.task and attempt = tickets.attempt and state = 'ready'
      and (due_at is null or due_at <= now() or next_run_at <= now() and due_at < {{blocked}})
    for update
  ) t
), changed as (
  update holdfast.tasks t
  set due_at = case when exists (select from closed) then {{blocked}} else now() end, ticketed_at = null, {{unparked}}
  from picked
  where t.id = picked.id
), counted as materialized (
  select t.id, t.attempt, g.id as gate_id, g.kind, coalesce({{bucket}}, '') as bucket
  from picked t, closed g, lateral (
    select case when g.kind = 'limit per target' then holdfast.target_of(t.type, t.payload) else '' end as target
  ) own
), arrived as (
  insert into holdfast.bucket_arrivals (gate_id, bucket)
  select distinct gate_id, bucket from counted where kind <> 'pause'
)
insert into holdfast.blocked (task_id, attempt, gate_id, bucket)
select id, attempt, gate_id, bucket from counted
on conflict (task_id) do update
set attempt = excluded.attempt, gate_id = excluded.gate_id, bucket = excluded.bucket, blocked_at = excluded.blocked_at

-- name: release
-- Releases at most $1 tasks of gates that are not closed. It locks the tasks first, as block does. A later call
-- releases tasks that another transaction has locked.
with locked as materialized ( -- one list, because a join of two would compare each row with each
  select o.*, t.id, t.attempt = o.attempt and t.state = 'ready' and t.due_at = {{blocked}} as here
  from (
    select b.task_id, b.attempt, b.gate_id
    from holdfast.gates g, lateral (
      select task_id, attempt, gate_id from holdfast.blocked where gate_id = g.id order by task_id limit $1
    ) b
    where g.lifted_at is not null
    limit $1
  ) o
  left join lateral (
    select id, attempt, state, due_at from holdfast.tasks where id = o.task_id for update skip locked
  ) t on true
), due as (
  update holdfast.tasks t set due_at = now() from locked where t.id = locked.id and locked.here
)
delete from holdfast.blocked b using locked
where b.task_id = locked.task_id and b.attempt = locked.attempt and b.gate_id = locked.gate_id
  -- With exists instead of coalesce, the planner could read all tasks.
  and (locked.id is not null or coalesce((select false from holdfast.tasks t where t.id = locked.task_id), true))

-- name: gates_opened
-- At most $1 gates that have opened and block no task, locked. Tickets.Block locks its gate until its commit, so no
-- transaction is blocking tasks at the returned gates. The statement skips the other gates.
select g.id from holdfast.gates g
where g.lifted_at is not null and not exists (select from holdfast.blocked b where b.gate_id = g.id)
order by g.id limit $1
for update skip locked

-- name: gates_delete
-- Deletes the gates $1 that block no task. Of limits among them, it first deletes the buckets, at most $2; the gate
-- remains until a later call finds no bucket of it. Its snapshot is later than that of gates_opened, so it sees the
-- tasks that were blocked before the gates were locked. buckets_arrived deletes the arrivals.
with free as materialized (
  select g.id from holdfast.gates g
  where g.id = any($1::bigint[]) and not exists (select from holdfast.blocked b where b.gate_id = g.id)
), emptied as (
  delete from holdfast.buckets b using (
    select o.gate_id, o.bucket from free, lateral (select gate_id, bucket from holdfast.buckets where gate_id = free.id limit $2) o limit $2
  ) o
  where b.gate_id = o.gate_id and b.bucket = o.bucket
)
delete from holdfast.gates g using free
where g.id = free.id and not exists (select from holdfast.buckets b where b.gate_id = g.id)

-- name: claims_in_progress
-- The transactions in which a claim has locked the table of workers.
select coalesce(array_agg(virtualtransaction), '{}') as transactions
from pg_locks
where locktype = 'relation' and relation = 'holdfast.workers'::regclass and mode = 'RowShareLock' and granted
  and database = (select oid from pg_database where datname = current_database())
