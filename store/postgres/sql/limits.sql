-- name: limits_lock
-- Each transaction that writes buckets or permits takes this lock, so no such transaction waits for another one at a
-- row. The lock also delays changes of gates and new workers, so the statement limits the times as gates_settings does.
-- It reads the time after it has the lock, so that the time never decreases from one decision to the next.
with locked as materialized (select epoch from holdfast.gate_epoch for no key update skip locked)
select clock_timestamp() as now from locked
where set_config('lock_timeout', '1s', true) <> '' and set_config('idle_in_transaction_session_timeout', '1s', true) <> ''

-- name: buckets_arrived
-- Makes the buckets in which workers have blocked tasks due for a check. A stored bucket keeps the time of its next
-- check, unless it has a row only because of a reservation. With an array, the plan does not depend on the number of
-- rows at the time of planning.
with arrived as materialized (
  delete from holdfast.bucket_arrivals
  where id = any(array(select id from holdfast.bucket_arrivals order by id limit 2500))
  returning gate_id, bucket
)
insert into holdfast.buckets as b (gate_id, bucket, next_at)
select distinct a.gate_id, a.bucket, now() from arrived a
where exists (select from holdfast.gates g where g.id = a.gate_id and g.lifted_at is null)
on conflict (gate_id, bucket) do update set next_at = excluded.next_at where b.reserved_task is not null and b.next_at < {{blocked}}

-- name: limits_of
-- The limits and breakers that the task $1 waits for.
select {{gate}}, {{limit}}, own_bucket.name as bucket, kept.reserved_task, kept.reserved_since,
  (select count(*) from holdfast.permits permit where permit.gate_id = g.id and permit.bucket = own_bucket.name and {{permit_used}}) as in_use,
  (select count(*) from (select from holdfast.blocked b where b.gate_id = g.id and b.bucket = own_bucket.name limit {{counted}}) counted) as blocked,
  (
    select count(*) from (
      select from holdfast.blocked b
      where b.gate_id = g.id and b.bucket = own_bucket.name
        and (self.task_id is null or (b.blocked_at, b.task_id) < (self.blocked_at, self.task_id))
      limit {{counted}}
    ) counted
  ) as ahead
from holdfast.tasks t
cross join lateral (select g.*, {{bucket}} as own_bucket from {{closed_gates}}) g
cross join lateral (select g.own_bucket as name) own_bucket
left join holdfast.blocked self on self.task_id = t.id and self.attempt = t.attempt and self.gate_id = g.id and self.bucket = own_bucket.name
left join holdfast.buckets kept on kept.gate_id = g.id and kept.bucket = own_bucket.name
where t.id = $1 and t.state = 'ready' and g.kind <> 'pause'
order by g.id

-- name: permits_next
-- The first $3 permits after the permit of the task $1 and the gate $2.
select task_id as task, gate_id as gate from holdfast.permits
where (task_id, gate_id) > ($1::bigint, $2::bigint)
order by task_id, gate_id
limit $3

-- name: permits_free
-- Deletes the free permits of the tasks $1, and makes their buckets due for a check. Attempt numbers only grow, so no
-- claim uses the permit of an earlier attempt. If the task may still start at the same attempt, the lock on the task
-- prevents its release meanwhile. So no claim that still sees the permit takes the task.
with looked as materialized (
  select p.* from (select distinct task from unnest((select $1::bigint[])) as a (task) order by task) a, lateral (
    select task_id, gate_id, attempt, bucket from holdfast.permits where task_id = a.task
  ) p
), locked as materialized (
  select free.*, t.id
  from (
    select permit.*, coalesce((select g.lifted_at is null from holdfast.gates g where g.id = permit.gate_id), false) as open_gate
    from looked permit
    offset 0
  ) free
  left join lateral (
    select t.id from holdfast.tasks t
    where t.id = free.task_id and t.attempt = free.attempt and t.state = 'ready'
      and (t.due_at = {{blocked}} or least(t.due_at, t.next_run_at) >= now() + interval '10 seconds' or {{queue_stays_paused}})
    for update of t skip locked
  ) t on true
), freed as materialized (
  select l.* from locked l
  where l.id is not null or not l.open_gate
    or coalesce((select t.attempt <> l.attempt or t.state not in ('ready', 'running') from holdfast.tasks t where t.id = l.task_id), true)
), woken as (
  update holdfast.buckets b set next_at = now()
  from (select distinct gate_id, bucket from freed) f
  where b.gate_id = f.gate_id and b.bucket = f.bucket and (b.next_at = {{blocked}} or b.reserved_task is not null)
)
delete from holdfast.permits p using freed f where p.task_id = f.task_id and p.gate_id = f.gate_id and p.attempt = f.attempt

-- name: buckets_due
-- At most $1 buckets whose tasks may get permits now. $2 is the maximum number of blocked tasks to count for each; a
-- number above the concurrency makes no difference.
select b.gate_id, b.bucket, b.allowed_at, b.behind, b.reserved_task, b.reserved_since, b.reserved_from, g.rate_count, g.rate_per, g.concurrency, g.probe_at, {{bucket_permits}} as in_use,
  (select count(*) from (select from holdfast.blocked w where w.gate_id = b.gate_id and w.bucket = b.bucket limit least($2, g.concurrency)) counted) as blocked
from holdfast.buckets b join holdfast.gates g on g.id = b.gate_id and g.lifted_at is null
where b.next_at <= now()
order by b.next_at
limit $1
for update of b

-- name: buckets_named
-- The buckets in the JSON document $1.
select b.gate_id, b.bucket, s.allowed_at, coalesce(s.behind, false) as behind, s.reserved_task, s.reserved_since, s.reserved_from, g.rate_count, g.rate_per, g.concurrency, g.probe_at, {{bucket_permits}} as in_use, 0 as blocked
from json_to_recordset($1) as b (gate_id bigint, bucket text)
join holdfast.gates g on g.id = b.gate_id
left join holdfast.buckets s on s.gate_id = b.gate_id and s.bucket = b.bucket

-- name: permits_held
-- The numbers of tasks with permits, and of tasks with slots of their topics, that run or may start now. Each queue has a
-- row.
select q.name as queue, coalesce(h.topic, '') as topic, coalesce(h.permits, 0) as permits, coalesce(h.slots, 0) as slots
from holdfast.queues q left join (
  select t.queue, t.topic, count(*) filter (where own.permit) as permits, count(*) filter (where t.topic is not null) as slots
  from (
    select task_id, bool_or(permit) as permit
    from (select task_id, true as permit from holdfast.permits union all select task_id, false from holdfast.topic_tasks where phase = 2) listed
    group by task_id
  ) own, lateral ( -- one look-up by id; see claim
    select queue, topic from holdfast.tasks
    where id = own.task_id and (state = 'running' or state = 'ready' and (due_at is null or due_at <= clock_timestamp()))
    offset 0
  ) t
  group by t.queue, t.topic
) h on h.queue = q.name

-- name: reserving
-- The tasks of $1 for which buckets keep permits: blocked tasks, except those at a pause or an open breaker, whose
-- permits would not be used for a long time. With offset 0, the planner cannot look up the task by its due time.
select w.task_id as task, w.blocked_at as since
from unnest((select $1::bigint[])) as a (task), lateral (
  select task_id, attempt, blocked_at from holdfast.blocked where task_id = a.task offset 0
) w, lateral (select * from holdfast.tasks where id = w.task_id offset 0) t
where t.attempt = w.attempt and t.state = 'ready' and t.due_at = {{blocked}}
  and not exists (select from {{closed_gates}} and (g.kind = 'pause' or g.probe_at > now()))

-- name: candidates
-- The first n blocked tasks of each bucket in the JSON document $1, in the order in which they were blocked. For the
-- bucket of a breaker, the statement also returns the newest tasks, and tasks from an id in the middle on; others is
-- the maximum number of each. middle is the position of that id between the lowest and the highest one, from 0 to 1. A
-- task has a row for each closed gate that applies to it. A task is busy if another transaction has locked it.
with t as materialized ( -- one list, because a join of two would compare each row with each
  select p.task_id, p.attempt as blocked_attempt, p.gate_id, p.bucket as blocked_bucket, p.blocked_at, own.*
  from (
    select b.*
    from json_to_recordset($1) as r (gate_id bigint, bucket text, n int, others int, middle float8), lateral (
      (select * from holdfast.blocked where gate_id = r.gate_id and bucket = r.bucket order by blocked_at, task_id limit r.n)
      union
      (select * from holdfast.blocked where gate_id = r.gate_id order by task_id desc limit coalesce(r.others, 0))
      union
      (
        select w.* from (
          select (select task_id from holdfast.blocked where gate_id = r.gate_id order by task_id limit 1) as low,
            (select task_id from holdfast.blocked where gate_id = r.gate_id order by task_id desc limit 1) as high
          where r.others > 0
        ) ends, lateral (
          select * from holdfast.blocked
          where gate_id = r.gate_id and task_id >= ends.low + floor((ends.high - ends.low) * r.middle)::bigint
          order by task_id limit r.others
        ) w
      )
    ) b
    order by b.task_id
  ) p
  left join lateral (
    select id, type, queue, topic, key, payload, state, attempt, due_at from holdfast.tasks where id = p.task_id for update skip locked
  ) own on true
)
select t.task_id, t.blocked_attempt as attempt, t.gate_id, t.blocked_bucket as bucket,
  case when t.id is null then coalesce((select false from holdfast.tasks e where e.id = t.task_id), true)
    else t.state <> 'ready' or t.attempt <> t.blocked_attempt or t.due_at is distinct from {{blocked}} end as gone,
  t.id is null as busy, t.blocked_at,
  coalesce(c.gate_id, 0) as needs, coalesce(c.kind <> 'pause', false) as permits, coalesce(c.bucket, '') as needs_bucket,
  coalesce(t.queue, '') as queue, coalesce(t.topic, '') as topic
from t
left join lateral (select g.id as gate_id, g.kind, {{bucket}} as bucket from {{closed_gates}}) c on t.id is not null
order by t.blocked_at, t.task_id, c.gate_id

-- name: admit
-- Makes the tasks in the JSON document $1 due, and gives them their permits. If these permits replace those of earlier
-- attempts, the buckets of the replaced permits become due for a check.
with listed as materialized (
  select * from json_to_recordset($1) as r (task_id bigint, attempt int, permits json)
), due as (
  update holdfast.tasks t set due_at = now() from listed where t.id = listed.task_id
), replaced as (
  update holdfast.buckets b set next_at = now()
  -- With offset 0, the planner cannot read permits and buckets in a different order.
  from (select distinct p.gate_id, p.bucket from listed l, lateral (select * from holdfast.permits where task_id = l.task_id offset 0) p) p
  where b.gate_id = p.gate_id and b.bucket = p.bucket and b.next_at = {{blocked}}
), unblocked as (
  delete from holdfast.blocked b using listed where b.task_id = listed.task_id and b.attempt = listed.attempt
), slots as ( -- a task with a topic gets its slot with its permits
  update holdfast.topic_tasks k set phase = 2 from listed where k.task_id = listed.task_id
)
insert into holdfast.permits (task_id, attempt, gate_id, bucket)
select l.task_id, l.attempt, p.gate_id, p.bucket from listed l, json_to_recordset(l.permits) as p (gate_id bigint, bucket text)
on conflict (task_id, gate_id) do update set attempt = excluded.attempt, bucket = excluded.bucket

-- name: blocked_move
-- Moves the blocked tasks in the JSON document $1 to other gates or buckets.
update holdfast.blocked b set gate_id = r.gate_id, bucket = r.bucket
from json_to_recordset($1) as r (task_id bigint, attempt int, gate_id bigint, bucket text)
where b.task_id = r.task_id and b.attempt = r.attempt

-- name: blocked_drop
-- Deletes the outdated rows of blocked tasks in the JSON document $1.
delete from holdfast.blocked b using json_to_recordset($1) as r (task_id bigint, attempt int)
where b.task_id = r.task_id and b.attempt = r.attempt

-- name: buckets_decided
-- Stores the state of the buckets in the JSON document $1. Times are in microseconds since 1970.
update holdfast.buckets b
set next_at = timestamptz 'epoch' + r.next_at * interval '1 microsecond', allowed_at = timestamptz 'epoch' + r.allowed_at * interval '1 microsecond',
  behind = r.behind, reserved_task = r.reserved_task, reserved_since = timestamptz 'epoch' + r.reserved_since * interval '1 microsecond',
  reserved_from = timestamptz 'epoch' + r.reserved_from * interval '1 microsecond'
from json_to_recordset($1) as r (
  gate_id bigint, bucket text, next_at bigint, allowed_at bigint, behind boolean, reserved_task bigint, reserved_since bigint, reserved_from bigint
)
where b.gate_id = r.gate_id and b.bucket = r.bucket

-- name: buckets_touched
-- Stores the rates of buckets that may have no row. If a bucket has a row, the time of its next check stays.
insert into holdfast.buckets as b (gate_id, bucket, next_at, allowed_at)
select r.gate_id, r.bucket, timestamptz 'epoch' + r.next_at * interval '1 microsecond', timestamptz 'epoch' + r.allowed_at * interval '1 microsecond'
from json_to_recordset($1) as r (gate_id bigint, bucket text, next_at bigint, allowed_at bigint)
order by r.gate_id, r.bucket
on conflict (gate_id, bucket) do update set allowed_at = excluded.allowed_at

-- name: buckets_delete
-- Deletes the buckets in the JSON document $1. They have no state to keep.
delete from holdfast.buckets b using json_to_recordset($1) as r (gate_id bigint, bucket text)
where b.gate_id = r.gate_id and b.bucket = r.bucket

-- name: buckets_next
-- The time until the next check of a bucket, in microseconds and at most a day, and whether a bucket waits for permits
-- to become free.
select {{next_bucket}}
