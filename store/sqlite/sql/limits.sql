-- The last parameter of each statement is the present time.

-- name: limits_of
-- The limits and breakers that the task ?1 waits for. ?2 is the present time.
with waiting as materialized (
  select g.id as gate_id, {{bucket}} as bucket
  from tasks, {{closed_gates}} and tasks.id = ?1 and tasks.state = 'ready' and g.kind <> 'pause'
)
select {{gate}}, {{limit}}, w.bucket, kept.reserved_task, kept.reserved_since,
  (select count(*) from permits permit where permit.gate_id = g.id and permit.bucket = w.bucket and {{permit_used}}) as in_use,
  (select count(*) from (select 1 from blocked b where b.gate_id = g.id and b.bucket = w.bucket limit {{counted}})) as blocked,
  (
    select count(*) from (
      select 1 from blocked b
      where b.gate_id = g.id and b.bucket = w.bucket
        and (own.task_id is null or (b.blocked_at, b.task_id) < (own.blocked_at, own.task_id))
      limit {{counted}}
    )
  ) as ahead
from waiting w join gates g on g.id = w.gate_id
left join blocked own on own.task_id = ?1 and own.gate_id = g.id and own.bucket = w.bucket
  and own.attempt = (select attempt from tasks where id = ?1)
left join buckets kept on kept.gate_id = g.id and kept.bucket = w.bucket
order by g.id

-- name: permits_next
-- The first ?3 permits after the permit of the task ?1 and the gate ?2.
select task_id as task, gate_id as gate from permits
where (task_id, gate_id) > (?1, ?2)
order by task_id, gate_id
limit ?3

-- name: permits_free
-- Deletes the free permits of the tasks ?1 at the time ?2, and makes their buckets due for a check. Attempt numbers
-- only grow, so no claim can use such a permit.
update buckets set next_at = ?2
where (next_at = {{blocked}} or reserved_task is not null) and (gate_id, bucket) in (
  select permit.gate_id, permit.bucket from permits permit
  where permit.task_id in (select value from json_each(?1)) and not {{permit_used}}
);

delete from permits
where (task_id, gate_id) in (
  select permit.task_id, permit.gate_id from permits permit
  where permit.task_id in (select value from json_each(?1))
    and (not {{permit_used}} or not exists (select 1 from gates g where g.id = permit.gate_id and g.lifted_at is null))
)

-- name: buckets_due
-- At most ?1 buckets whose tasks may get permits now. ?2 is the maximum number of blocked tasks to count for each.
select b.gate_id, b.bucket, b.allowed_at, b.behind, b.reserved_task, b.reserved_since, b.reserved_from, g.rate_count, g.rate_per, g.concurrency, g.probe_at, {{bucket_permits}} as in_use,
  (select count(*) from (select 1 from blocked w where w.gate_id = b.gate_id and w.bucket = b.bucket limit ?2)) as blocked
from buckets b join gates g on g.id = b.gate_id and g.lifted_at is null
where b.next_at <= ?3
order by b.next_at
limit ?1

-- name: buckets_named
-- The buckets in the JSON document ?1.
select g.id as gate_id, b.bucket, s.allowed_at, coalesce(s.behind, 0) as behind, s.reserved_task, s.reserved_since, s.reserved_from, g.rate_count, g.rate_per, g.concurrency, g.probe_at, {{bucket_permits}} as in_use, 0 as blocked
from (select value ->> 'gate_id' as gate_id, value ->> 'bucket' as bucket from json_each(?1)) b
join gates g on g.id = b.gate_id
left join buckets s on s.gate_id = b.gate_id and s.bucket = b.bucket

-- name: permits_held
-- The numbers of tasks with permits, and of tasks with slots of their topics, that run or may start now. Each queue has a
-- row.
select q.name as queue, coalesce(h.topic, '') as topic, coalesce(h.permits, 0) as permits, coalesce(h.slots, 0) as slots
from queues q left join (
  select tasks.queue, tasks.topic, sum(own.permit) as permits, sum(tasks.topic is not null) as slots
  from (
    select task_id, max(permit) as permit
    from (select task_id, 1 as permit from permits union all select task_id, 0 from topic_tasks where phase = 2) listed
    group by task_id
  ) own cross join tasks on tasks.id = own.task_id
  where tasks.state = 'running' or tasks.state = 'ready' and (tasks.due_at is null or tasks.due_at <= ?1)
  group by tasks.queue, tasks.topic
) h on h.queue = q.name

-- name: reserving
-- The tasks of ?1 for which buckets keep permits: blocked tasks, except those at a pause or an open breaker, whose
-- permits would not be used for a long time.
select w.task_id as task, w.blocked_at as since
from json_each(?1) as listed cross join blocked w on w.task_id = listed.value cross join tasks on tasks.id = w.task_id and tasks.attempt = w.attempt
where tasks.state = 'ready' and +tasks.due_at = {{blocked}}
  and not exists (select 1 from {{closed_gates}} and (g.kind = 'pause' or g.probe_at > ?2))

-- name: candidates
-- The first blocked tasks of each bucket in the JSON document ?1, in the order in which they were blocked. The largest
-- n limits their number. For the bucket of a breaker, the statement also returns the newest tasks, and tasks from an id
-- in the middle on; the largest others limits the number of each. middle is the position of that id between the lowest
-- and the highest one, from 0 to 1. A task has a row for each closed gate that applies to it.
with picked as materialized (
  select b.task_id, b.attempt, b.gate_id, b.bucket, b.blocked_at
  from json_each(?1) as r cross join blocked b on b.rowid in (
    select rowid from blocked
    where gate_id = r.value ->> 'gate_id' and bucket = r.value ->> 'bucket'
    order by blocked_at, task_id limit (select max(value ->> 'n') from json_each(?1))
  )
  union
  select b.task_id, b.attempt, b.gate_id, b.bucket, b.blocked_at
  from json_each(?1) as r cross join blocked b on b.rowid in (
    select rowid from blocked
    where gate_id = r.value ->> 'gate_id'
    order by task_id desc limit (select max(value ->> 'others') from json_each(?1))
  )
  where r.value ->> 'others' > 0
  union
  select b.task_id, b.attempt, b.gate_id, b.bucket, b.blocked_at
  from json_each(?1) as r cross join blocked b on b.rowid in (
    select rowid from blocked
    where gate_id = r.value ->> 'gate_id' and task_id >= (
      select low + cast((high - low) * (r.value ->> 'middle') as integer) from (
        select (select task_id from blocked where gate_id = r.value ->> 'gate_id' order by task_id limit 1) as low,
          (select task_id from blocked where gate_id = r.value ->> 'gate_id' order by task_id desc limit 1) as high
      )
    )
    order by task_id limit (select max(value ->> 'others') from json_each(?1))
  )
  where r.value ->> 'others' > 0
)
select picked.task_id, picked.attempt, picked.gate_id, picked.bucket,
  coalesce(tasks.state <> 'ready' or tasks.attempt <> picked.attempt or tasks.due_at is not {{blocked}}, 1) as gone, 0 as busy, picked.blocked_at,
  coalesce(g.id, 0) as needs, coalesce(g.kind <> 'pause', 0) as permits, coalesce({{bucket}}, '') as needs_bucket,
  coalesce(tasks.queue, '') as queue, coalesce(tasks.topic, '') as topic
from picked
left join tasks on tasks.id = picked.task_id
left join gates g on g.id in (select g.id from {{closed_gates}})
order by picked.blocked_at, picked.task_id, g.id

-- name: admit
-- Makes the tasks in the JSON document ?1 due, and gives them their permits. If these permits replace those of earlier
-- attempts, the buckets of the replaced permits become due for a check.
update tasks set due_at = ?2 where id in (select value ->> 'task_id' from json_each(?1));

update topic_tasks set phase = 2 where task_id in (select value ->> 'task_id' from json_each(?1)); -- a task with a topic gets its slot with its permits

delete from blocked where task_id in (select value ->> 'task_id' from json_each(?1));

update buckets set next_at = ?2
where next_at = {{blocked}} and (gate_id, bucket) in (
  select p.gate_id, p.bucket from json_each(?1) as l join permits p on p.task_id = l.value ->> 'task_id'
);

insert into permits (task_id, attempt, gate_id, bucket)
select l.value ->> 'task_id', l.value ->> 'attempt', needed.value ->> 'gate_id', needed.value ->> 'bucket'
from json_each(?1) as l, json_each(l.value, '$.permits') as needed
where true
on conflict (task_id, gate_id) do update set attempt = excluded.attempt, bucket = excluded.bucket

-- name: blocked_move
-- Moves the blocked tasks in the JSON document ?1 to other gates or buckets.
update blocked set gate_id = r.value ->> 'gate_id', bucket = r.value ->> 'bucket'
from json_each(?1) as r
where blocked.task_id = r.value ->> 'task_id' and blocked.attempt = r.value ->> 'attempt'

-- name: blocked_drop
-- Deletes the outdated rows of blocked tasks in the JSON document ?1.
delete from blocked
where (task_id, attempt) in (select value ->> 'task_id', value ->> 'attempt' from json_each(?1))

-- name: buckets_decided
-- Stores the state of the buckets in the JSON document ?1.
update buckets set next_at = r.value ->> 'next_at', allowed_at = r.value ->> 'allowed_at', behind = r.value ->> 'behind',
  reserved_task = r.value ->> 'reserved_task', reserved_since = r.value ->> 'reserved_since', reserved_from = r.value ->> 'reserved_from'
from json_each(?1) as r
where buckets.gate_id = r.value ->> 'gate_id' and buckets.bucket = r.value ->> 'bucket'

-- name: buckets_touched
-- Stores the rates of buckets that may have no row. If a bucket has a row, the time of its next check stays.
insert into buckets (gate_id, bucket, next_at, allowed_at)
select value ->> 'gate_id', value ->> 'bucket', value ->> 'next_at', value ->> 'allowed_at' from json_each(?1)
where true
on conflict (gate_id, bucket) do update set allowed_at = excluded.allowed_at

-- name: buckets_delete
-- Deletes the buckets in the JSON document ?1. They have no state to keep.
delete from buckets
where (gate_id, bucket) in (select value ->> 'gate_id', value ->> 'bucket' from json_each(?1))

-- name: buckets_next
-- The time until the next check of a bucket, in microseconds and at most a day, and whether a bucket waits for permits
-- to become free.
select cast((
    select min(b.next_at - ?1, 86400000000) from buckets b
    where (select g.lifted_at is null from gates g where g.id = b.gate_id)
    order by b.next_at limit 1
  ) as real) as after, exists (select 1 from buckets where next_at = {{blocked}}) as waiting
