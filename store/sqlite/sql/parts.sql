-- The parts that several statements share.

-- {{columns}}: the columns of a task without its payload.
tasks.id, tasks.type, tasks.queue, tasks.state, coalesce(tasks.unique_key, '') as unique_key,
tasks.attempt, tasks.max_attempts, tasks.failures, tasks.crashes, tasks.deferrals, coalesce(tasks.worker_id, 0) as worker_id,
tasks.next_run_at, tasks.created_at, tasks.started_at, tasks.finished_at,
coalesce(tasks.last_error, '') as last_error, coalesce(tasks.parked, '') as parked,
coalesce(tasks.idempotency_key, '') as idempotency_key,
coalesce(tasks.buffered and tasks.state = 'running', 0) as buffered, coalesce(tasks.key, '') as key, tasks.tags, coalesce(tasks.ordered, 0) as ordered, coalesce(tasks.topic, '') as topic,
coalesce(tasks.trace, '') as trace

-- {{listed}}: {{columns}} for people, with the batch. A claim does not read it.
{{columns}}, coalesce(tasks.plan, 0) as batch

-- {{payload}}: the payload of a task. A long payload is in another table.
{{payload_text}} as payload

-- {{claim_first}}: the beginning of the statements that claim tasks.
update tasks
set state = 'running', worker_id = ?3, started_at = ?2, due_at = null, ticketed_at = null, parked = null, buffered = nullif(?6, 0)

-- {{claimable}}: the condition for the tasks that can be claimed.
tasks.state = 'ready' and tasks.type in (select value from json_each(?4))
  and (tasks.crashes = 0 or tasks.crashes <= (select k.value from json_each(?5) as k where k.key = tasks.type))
  -- The task may run now. A due_at later than next_run_at only postpones the next try to publish.
  and (tasks.due_at is null or tasks.due_at <= ?2 or tasks.next_run_at <= ?2 and +tasks.due_at < {{blocked}})
  and (not ?7 or not exists (select 1 from {{closed_gates}}))

-- {{claimed}}: the columns of a task that a claim returns.
tasks.id, tasks.type, tasks.queue, tasks.unique_key, tasks.attempt, tasks.max_attempts, tasks.failures, tasks.crashes, tasks.deferrals,
tasks.created_at, tasks.next_run_at, tasks.last_error, tasks.idempotency_key, tasks.key, tasks.tags, tasks.ordered, tasks.topic,
tasks.trace, {{payload_text}}

-- {{closed_gates}}: the gates g that apply to a task and are closed at the time ?2. Limits and breakers are closed for
-- tasks without a permit. Each column of a gate's subject is '' or the value of the task, so a look-up in the index has
-- at most 16 subjects.
gates g indexed by gates_lookup
where g.lifted_at is null and (g.until is null or g.until > ?2)
  and g.queue in ('', substr(tasks.queue || '.', 1, instr(tasks.queue || '.', '.') - 1)) and g.type in ('', tasks.type)
  and g.key in ('', coalesce(tasks.key, '')) and g.target in ('', {{target}})
  and case g.kind
    when 'limit per key' then tasks.key is not null
    when 'limit per target' then {{target}} <> ''
    else true
  end
  and (g.kind = 'pause' or not exists (
    select 1 from permits p where p.task_id = tasks.id and p.gate_id = g.id and p.attempt = tasks.attempt
  ))

-- {{target}}: the target of a task if there are gates of targets, otherwise ''.
iif(
  tasks.type = 'http' and exists (select 1 from gates indexed by gates_targets where lifted_at is null and (target <> '' or kind = 'limit per target')),
  target_of(tasks.type, {{payload_text}}), ''
)

-- {{probe}}: whether a claimed task has a permit of a breaker.
exists (
  select 1 from permits p join gates g on g.id = p.gate_id
  where p.task_id = tasks.id and p.attempt = tasks.attempt and g.kind = 'breaker' and g.lifted_at is null
)

-- {{bucket}}: the name of the bucket in which the gate g counts a task.
case g.kind when 'limit per key' then tasks.key when 'limit per target' then target_of(tasks.type, {{payload_text}}) else '' end

-- {{permit_used}}: whether a permit is in use at the time ?2: its task is at the same attempt, and running or about to
-- start. The permit of a task that is due later or in a paused queue is free, except in the first and last seconds, as
-- in the other adapter.
coalesce((
  select t.attempt = permit.attempt and (t.state = 'running' or t.state = 'ready'
    and (t.due_at is null or min(t.due_at, t.next_run_at) < ?2 + 10000000 and t.due_at < {{blocked}})
    and not exists (
      select 1 from gates g
      where g.lifted_at is null and g.queue = substr(t.queue || '.', 1, instr(t.queue || '.', '.') - 1) and g.kind = 'pause' and g.type = '' and g.key = '' and g.target = ''
        and g.closed_at < ?2 - 10000000 and (g.until is null or g.until > ?2 + 10000000)
    ))
  from tasks t where t.id = permit.task_id
), 0)

-- {{bucket_permits}}: the number of permits in the bucket b of the limit g. It is 0 if the limit has no concurrency.
iif(g.concurrency is null, 0, (select count(*) from permits p where p.gate_id = g.id and p.bucket = b.bucket))

-- {{payload_text}}: {{payload}} as an expression.
coalesce(tasks.payload, (select p.payload from payloads p where p.task_id = tasks.id))

-- {{unparked}}: ends the park of a task that waits for something else from now on. Its next_run_at may be the end of the
-- park, a time that only the store computed. Without the reason, correct_tasks could not tell it from a wanted delay.
parked = null, next_run_at = case when parked is null then next_run_at else min(next_run_at, coalesce(started_at, created_at)) end

-- {{blocked}}: the due time of a blocked task, the beginning of the year 9999. Builds without gates compute with it.
253370764800000000

-- {{blockable}}: whether a ready task may start at the time ?3, so that it can be blocked.
(tasks.due_at is null or tasks.due_at <= ?3 or tasks.next_run_at <= ?3 and +tasks.due_at < {{blocked}})

-- {{gateless}}: whether no gate will release the blocked task t, and it waits neither for its turn nor for a slot.
t.next_run_at < {{blocked}} and not exists (
  select 1 from blocked b join gates g on g.id = b.gate_id where b.task_id = t.id and b.attempt = t.attempt
) and not (t.ordered is not null and exists (select 1 from key_waits w where w.key = t.key and w.task_id = t.id))
  and not (t.topic is not null and exists (select 1 from topic_tasks k where k.task_id = t.id and k.phase < 2))

-- {{topic_cursors}}: the cursors of the topic k in the subqueue q. There may still be rows of tasks that have ended.
coalesce((
    select min(first.id) from (
      select (
        select o.task_id from topic_tasks o join tasks t on t.id = o.task_id
        where o.queue = q.name and o.topic = k.topic and o.phase = p.value and t.state in ('ready', 'running')
        order by o.task_id limit 1
      ) as id from json_each('[0,1,2,3,4]') as p
    ) as first
  ), 0) as open, coalesce((
    select min(first.id) from (
      select (
        select o.task_id from topic_tasks o join tasks t on t.id = o.task_id
        where o.queue = q.name and o.topic = k.topic and o.phase = p.value and t.state = 'ready' and t.started_at is null
        order by o.task_id limit 1
      ) as id from json_each('[0,2,3]') as p
    ) as first
  ), 0) as fresh, coalesce((select seq from sqlite_sequence where name = 'tasks'), 0) as stored

-- {{topic_counts}}: the numbers of open tasks of the topic k in the subqueue q.
(select count(*) from (select 1 from topic_tasks o where o.queue = q.name and o.topic = k.topic and o.phase < 2 limit {{counted}})) as waiting,
(select count(*) from (select 1 from topic_tasks o where o.queue = q.name and o.topic = k.topic and o.phase = 2 limit {{counted}})) as slots,
(select count(*) from (select 1 from topic_tasks o where o.queue = q.name and o.topic = k.topic and o.phase > 2 limit {{counted}})) as later

-- {{ordered_key}}: the key o and its active task t.
o.key, coalesce(o.active, 0) as active, o.dead = 2 as doomed, coalesce(t.state, '') as state, coalesce(t.dead_at, t.created_at) as since,
  (select count(*) from (select 1 from key_waits w where w.key = o.key limit {{counted}})) as waiting

-- {{window}}: the tasks with the ids from ?11 on and below ?5.
tasks not indexed where tasks.id >= ?11 and tasks.id < ?5 and

-- {{dead_window}}: dead letters with the ids from ?11 on and below ?5.
tasks indexed by tasks_dead where tasks.dead_at is not null and tasks.id >= ?11 and tasks.id < ?5 and

-- {{running_tasks}}: running tasks, which are few and have an index.
tasks indexed by tasks_worker where tasks.worker_id is not null and

-- {{unique_task}}: the task with the unique key ?8.
tasks where tasks.unique_key = ?8 and

-- {{keyed}}: the tasks with the key ?19 and the ids from ?11 on and below ?5.
tasks indexed by tasks_key where tasks.key = ?19 and tasks.id >= ?11 and tasks.id < ?5 and

-- {{listed_tasks}}: the tasks with the ids ?14.
tasks not indexed where tasks.id in (select value from json_each(?14)) and

-- {{tagged}}: the records g of the tasks with the first of the tags ?12.
tags g cross join tasks on tasks.id = g.task_id where g.tag = ?12 ->> 0

-- {{tagged_dead}}: the records of {{tagged}} of dead tasks. An index has the dead tasks, so no other task is read.
tags g cross join tasks indexed by tasks_dead on tasks.id = g.task_id and tasks.dead_at is not null where g.tag = ?12 ->> 0

-- {{grouped}}: the records d of the tasks with the fingerprint ?15.
deaths d indexed by deaths_group cross join tasks on tasks.id = d.task_id where d.fingerprint = ?15

-- {{died}}: the records d of deaths.
deaths d not indexed cross join tasks on tasks.id = d.task_id where true

-- {{filter}}: the condition of list and count. Its parameters are those of {{condition}} and {{death}}.
{{condition}}
and (?15 = '' and ?16 = '' and ?17 = '' and ?18 = 0
  or tasks.dead_at is not null and coalesce((select {{death}} from deaths d where d.task_id = tasks.id), 0))

-- {{condition}}: the condition for a task. ?1 has states, ?2 is a type, ?3 has subqueues, ?4 is a part of the last
-- error, and ?5 an exclusive upper bound of ids. ?6 and ?7 bound the time when a task ended, or was created if it has
-- not ended. ?8 is a unique key, ?9 and ?10 bound the attempt, and ?11 is an inclusive lower bound of ids. ?12 is a
-- JSON list of tags, and ?13 a JSON list of conditions for the payload. ?14 has ids, ?23 has ids of tasks to leave out,
-- ?19 is a key, ?21 a topic, ?22 a batch, ?24 a worker, and ?25 an operation that has changed the task. ?20 has the
-- part after the dot in the names of subqueues.
-- The condition for the payload is the last one, because it takes longest.
(?1 = '[]' or tasks.state in (select value from json_each(?1)))
and (?2 = '' or tasks.type = ?2)
and (?3 = '[]' or tasks.queue in (select value from json_each(?3)))
and (?20 = '[]' or substr(tasks.queue, instr(tasks.queue || '.', '.') + 1) in (select value from json_each(?20)))
and (?4 = '' or contains(tasks.last_error, ?4))
and (?5 = 0 or tasks.id < ?5)
and (?6 = 0 or coalesce(tasks.finished_at, tasks.created_at) >= ?6)
and (?7 = 0 or coalesce(tasks.finished_at, tasks.created_at) < ?7)
and (?8 = '' or tasks.unique_key = ?8)
and (?19 = '' or tasks.key = ?19)
and (?21 = '' or tasks.topic = ?21)
and (?22 = 0 or tasks.plan = ?22)
and (?24 = 0 or tasks.worker_id = ?24)
and (?25 = 0 or exists (select 1 from audit c indexed by audit_task where c.task_id = tasks.id and c.operation_id = ?25))
and (?9 = 0 or tasks.attempt >= ?9)
and (?10 = 0 or tasks.attempt <= ?10)
and (?11 = 0 or tasks.id >= ?11)
and (?12 = '[]' or (
  select count(*) from json_each(tasks.tags) as own where own.value in (select value from json_each(?12))
) = json_array_length(?12))
and (?14 = '[]' or tasks.id in (select value from json_each(?14)))
and (?23 = '[]' or tasks.id not in (select value from json_each(?23)))
and (?13 = '[]' or payload_matches(coalesce(tasks.payload, (select p.payload from payloads p where p.task_id = tasks.id)), ?13))

-- {{death}}: the condition for a record d of a death. ?15 is a fingerprint, ?16 a class, ?17 a host, and ?18 a status.
(?15 = '' or d.fingerprint = ?15)
and (?16 = '' or d.class = ?16)
and (?17 = '' or d.host = ?17)
and (?18 = 0 or d.status = ?18)

-- {{apply_unchanged}}: whether the task t is still in the state for which the caller computed the transition. ?1 is the
-- task, ?2 the attempt, ?3 the worker or 0, and ?4 the allowed states as ",ready,running,".
t.id = ?1 and t.attempt = ?2 and coalesce(t.worker_id, 0) = ?3 and instr(?4, ',' || t.state || ',') > 0

-- {{died_at}}: when the archived task t died. finished_at has the time at which it was archived.
min(t.finished_at, coalesce((select max(a.finished_at) from attempts a where a.task_id = t.id), t.finished_at))

-- {{sentinels_due_which}}: the condition for the queues that need a sentinel. ?1 is the present time, ?2 the interval,
-- and ?3 the age from which a sentinel is treated as lost. If a time lies in the future, the clock was set back since
-- then. Such times prove nothing and would delay the next sentinels.
(sentinel_sent_at is null
  or sentinel_sent_at <= ?1 - ?2 and (drained_through >= sentinel_sent_at or sentinel_sent_at <= ?1 - ?3)
  or max(coalesce(sentinel_sent_at, 0), coalesce(drained_through, 0), coalesce(drained_at, 0), coalesce(held_through, 0), coalesce(held_at, 0),
    coalesce(proved_through, 0))
    > ?1 + 2000000)

-- {{ticket_queue}}: the name under which sentinels prove the ticket of a task t lost. The tickets of requeued tasks may
-- wait in a type queue, if there is one.
iif(t.requeued and exists (select 1 from queues y where y.name = t.queue || '/' || t.type), t.queue || '/' || t.type, t.queue)

-- {{queue_ahead}}: the condition that a time of the queue's sentinels lies in the future.
max(coalesce(drained_through, 0), coalesce(drained_at, 0), coalesce(held_through, 0), coalesce(held_at, 0), coalesce(proved_through, 0))
  > ?1 + 2000000

-- {{idle_workers}}: the workers that have free executors and were live at the time after this part.
select queues, types from workers
where state = 'live' and not draining and running < concurrency and types is not null and started_at <

-- {{idle_for}}: the condition for the idle workers that take the task t.
t.type in (select value from json_each(idle.types))
  and (idle.queues = '[]' or substr(t.queue || '.', 1, instr(t.queue || '.', '.') - 1) in (select value from json_each(idle.queues)))

-- {{adding}}: the end of an insert into counts that adds to the present numbers.
on conflict (block, queue, type, state) do update set n = counts.n + excluded.n

-- {{fingerprints}}: the fingerprints of dead tasks after ?1. For each, the statement reads one entry of the index.
found (fingerprint) as (
  select min(fingerprint) from deaths where fingerprint > ?1
  union all
  select (select min(d.fingerprint) from deaths d where d.fingerprint > found.fingerprint)
  from found
  where found.fingerprint is not null
  limit ?2 + 1
)

-- {{random_step}}: 0, because a file loses no commit; see the other adapter.
0
