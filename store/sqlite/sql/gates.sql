-- The last parameter of each statement is the present time.

-- name: paused_queues
select queue as name from gates
where lifted_at is null and (until is null or until > ?1) and kind = 'pause'
  and queue <> '' and type = '' and key = '' and target = ''

-- name: gates_of
-- The first closed gate of each ready task of ?1 that has a closed gate.
select tasks.id as task, {{gate}}, 0 as blocked
from json_each(?1) as listed cross join tasks on tasks.id = listed.value
  join gates g on g.id = (select g.id from {{closed_gates}} order by {{gate_order}} limit 1)
where tasks.state = 'ready'

-- name: blocked_by_queue
-- The number of tasks in each subqueue that closed gates or dead ordered tasks block, and for how many microseconds the
-- oldest of them has been due. It reads at most ?1 rows. The rows that are outdated have the queue ''. A left join looks
-- up each task by its id.
select coalesce(tasks.queue, '') as queue, count(*) as tasks, coalesce(max(0, ?2 - min(tasks.next_run_at)), 0) as oldest
from (
  select b.task_id, b.attempt
  from gates g cross join blocked b on b.gate_id = g.id
  where g.lifted_at is null and (g.until is null or g.until > ?2)
  union all
  select w.task_id, null from key_order o cross join key_waits w on w.key = o.key where o.dead > 0 and o.dead = 1 -- the first condition is that of the index
  limit ?1
) listed
left join tasks on tasks.id = listed.task_id and tasks.attempt = coalesce(listed.attempt, tasks.attempt) and tasks.state = 'ready' and +tasks.due_at = {{blocked}}
group by tasks.queue

-- name: gates_open
-- expired: gates have passed their time; ?1 is that of gates_expired. lifted: tasks may have to be released. limited:
-- there are buckets or permits. permits: there are permits. freed: a task of ?2 has a permit. unchecked: keys of
-- ordered tasks need a check. topical: tasks wait for slots. open: tasks with topics are open. used: tasks with topics
-- were stored at some time. after and waiting are those of buckets_next.
select
  exists (select 1 from gates g where g.lifted_at is null and g.until <= {{now}})
    or exists (select 1 from gates g where g.lifted_at is null and {{forgotten}}) as expired,
  exists (select 1 from gates g where g.lifted_at is not null) as lifted,
  exists (select 1 from buckets) or exists (select 1 from permits) as limited, exists (select 1 from permits) as permits,
  exists (select 1 from permits where task_id in (select value from json_each(?2))) as freed, exists (select 1 from key_checks) as unchecked,
  exists (select 1 from topic_arrivals) or exists (select 1 from topic_turns) as topical, exists (select 1 from topic_tasks) as open,
  (select looked_at > 0 from topic_state) as used,
  cast((
    select min(b.next_at - {{now}}, 86400000000) from buckets b
    where (select l.lifted_at is null from gates l where l.id = b.gate_id)
    order by b.next_at limit 1
  ) as real) as after, exists (select 1 from buckets where next_at = {{blocked}}) as waiting

-- name: block
-- Blocks tasks at the gate ?2. If the gate has opened, the tasks become due instead.
insert into buckets (gate_id, bucket, next_at)
select distinct g.id, coalesce({{bucket}}, ''), ?3
from json_each(?1) as tickets
  join tasks on tasks.id = tickets.value ->> 0 and tasks.attempt = tickets.value ->> 1 and tasks.state = 'ready' and {{blockable}}
  join gates g on g.id = ?2 and g.lifted_at is null and g.kind <> 'pause'
where true
on conflict (gate_id, bucket) do update set next_at = excluded.next_at where reserved_task is not null and next_at < {{blocked}};

insert into blocked (task_id, attempt, gate_id, blocked_at, bucket)
select tasks.id, tasks.attempt, g.id, ?3, coalesce({{bucket}}, '')
from json_each(?1) as tickets
  join tasks on tasks.id = tickets.value ->> 0 and tasks.attempt = tickets.value ->> 1 and tasks.state = 'ready' and {{blockable}}
  join gates g on g.id = ?2 and g.lifted_at is null and (g.until is null or g.until > ?3)
where true
on conflict (task_id) do update set attempt = excluded.attempt, gate_id = excluded.gate_id, blocked_at = excluded.blocked_at, bucket = excluded.bucket;

update tasks
set due_at = iif(exists (select 1 from gates g where g.id = ?2 and g.lifted_at is null and (g.until is null or g.until > ?3)), {{blocked}}, ?3),
  ticketed_at = null, {{unparked}}
from json_each(?1) as tickets
where tasks.id = tickets.value ->> 0 and tasks.attempt = tickets.value ->> 1 and tasks.state = 'ready'
  and {{blockable}}

-- name: release_pick
-- At most ?1 blocked tasks of gates that are not closed.
select b.task_id as id
from gates g cross join blocked b on b.gate_id = g.id
where g.lifted_at is not null
limit ?1

-- name: release
-- Releases the tasks ?1, which release_pick has returned.
update tasks set due_at = ?2
from json_each(?1) as picked
where tasks.id = picked.value and tasks.state = 'ready' and +tasks.due_at = {{blocked}}
  and tasks.attempt = (select b.attempt from blocked b where b.task_id = tasks.id);

delete from blocked where task_id in (select value from json_each(?1))

-- name: gates_delete
-- Deletes at most ?1 gates that have opened and block no task. Of limits among them, it first deletes the buckets, at
-- most ?1; the gate remains until a call finds no other bucket of it.
delete from buckets
where (gate_id, bucket) in (
  select b.gate_id, b.bucket
  from gates g cross join buckets b on b.gate_id = g.id
  where g.lifted_at is not null and not exists (select 1 from blocked where gate_id = g.id)
  limit ?1
);

delete from gates
where id in (
  select g.id from gates g
  where g.lifted_at is not null and not exists (select 1 from blocked where gate_id = g.id) and not exists (select 1 from buckets where gate_id = g.id)
  limit ?1
)
