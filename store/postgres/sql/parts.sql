-- The parts that several statements share.

-- {{columns}}: the columns of a task t without its payload.
t.id, t.type, t.queue, t.state, coalesce(t.unique_key, '') as unique_key,
t.attempt, t.max_attempts, t.failures, t.crashes, t.deferrals, coalesce(t.worker_id, 0) as worker_id,
t.next_run_at, t.created_at, t.started_at, t.finished_at,
coalesce(t.last_error, '') as last_error, coalesce(t.parked, '') as parked, coalesce(t.idempotency_key, '') as idempotency_key,
coalesce(t.buffered and t.state = 'running', false) as buffered, coalesce(t.key, '') as key, t.tags, coalesce(t.ordered, 0) as ordered, coalesce(t.topic, '') as topic, coalesce(t.trace, '') as trace

-- {{listed}}: {{columns}} for people, with the batch. A claim does not read it.
{{columns}}, coalesce(t.plan, 0) as batch

-- {{claimable}}: the condition for the tasks t that can be claimed. $4 is the wanted types, and $5 how many crashes
-- each type allows. live is empty if the claiming worker is not live.
t.state = 'ready' and t.type = any((select $4::text[])::text[])
  and (t.crashes = 0 or t.crashes <= ($5::bigint[])[array_position($4::text[], t.type)])
  -- The task may run now. A due_at later than next_run_at only postpones the next try to publish.
  and (t.due_at is null or t.due_at <= now() or t.next_run_at <= now() and t.due_at < {{blocked}})
  and exists (select from live)

-- {{claim_first}}: the beginning of claim_range and claim_range_gated. $7 is the epoch of the gates. The parameters
-- that the planner could use for its estimates are in subqueries. Otherwise the planner would prefer a plan for their
-- values, and plan each execution.
with live as materialized (
  select id from holdfast.workers where id = (select $1::bigint) and state = 'live' and gate_epoch = $7 for key share
)
update holdfast.tasks t
set state = 'running', worker_id = $1, started_at = now(), due_at = null, ticketed_at = null, parked = null, buffered = $6
from unnest((select $8::bigint[]), (select $9::bigint[]), (select $10::int[])) as id_range (first, last, start)

-- {{unchanged}}: whether the row of the task t is the one that the snapshot of the statement sees. A claim that has
-- waited for a lock checks the conditions of the changed row again, but it still sees the permits of its snapshot.
-- During the wait, the task may have been blocked and released, and another task may have got its permit.
t.xmin = (select seen.xmin from holdfast.tasks seen where seen.id = t.id)

-- {{closed_gates}}: the closed gates g that apply to the task t. Limits and breakers are closed for tasks without a
-- permit. The shape of a gate says which columns of its subject must equal those of the task; see {{gate_shape}}. The
-- statement looks up one subject for each shape of the present gates, in the index gates_lookup. With offset 0, the
-- planner cannot change the order of the steps. It also cannot read all gates with the index gates_subject, because the
-- look-up has no condition on lifted_at.
(
  select case when t.type = 'http' and {{gates_of_targets}} then holdfast.target_of(t.type, t.payload) else '' end as target
  offset 0
) own, lateral (
  select shape from unnest(array({{gate_shapes}})) as used (shape)
  where (shape & 4 = 0 or t.key <> '') and (shape & 8 = 0 or t.key is not null) and (shape & 48 = 0 or own.target <> '')
  offset 0
) subject, lateral (
  select * from holdfast.gates
  where {{gate_shape}} = subject.shape
    and queue collate "C" = case when subject.shape & 1 > 0 then split_part(t.queue, '.', 1) else '' end
    and type collate "C" = case when subject.shape & 2 > 0 then t.type else '' end
    and key collate "C" = case when subject.shape & 4 > 0 then t.key else '' end
    and target collate "C" = case when subject.shape & 16 > 0 then own.target else '' end
  offset 0
) g
where g.lifted_at is null and (g.until is null or g.until > now())
  and (g.kind = 'pause' or not exists (
    select from holdfast.permits p where p.task_id = t.id and p.gate_id = g.id and p.attempt = t.attempt
  ))

-- {{gate_shape}}: the shape of a gate is a sum: 1 if it names a queue, 2 a type, 4 a key, 16 a target; 8 if it applies
-- only to tasks with a key, and 32 only to tasks with a target; 64 if it is a breaker. The shape is the first column of
-- the index gates_lookup.
(queue <> '')::int + (type <> '')::int * 2 + (key <> '')::int * 4 + (kind = 'limit per key')::int * 8
  + (target <> '')::int * 16 + (kind = 'limit per target')::int * 32 + (kind = 'breaker')::int * 64

-- {{gate_shapes}}: the shapes of the present gates. A statement reads one entry of the index for each, once.
with recursive found as (
  (select {{gate_shape}} as shape from holdfast.gates order by 1 limit 1)
  union all
  select (select {{gate_shape}} from holdfast.gates where {{gate_shape}} > found.shape order by 1 limit 1)
  from found where found.shape is not null
)
select shape from found where shape is not null

-- {{gates_of_targets}}: whether there are gates that need the targets of tasks.
exists (select from holdfast.gates where {{gate_shape}} >= 16)

-- {{bucket}}: the name of the bucket in which the gate g counts a task; for use with {{closed_gates}}.
case g.kind when 'limit per key' then t.key when 'limit per target' then own.target else '' end

-- {{permit_used}}: whether a permit is in use: its task is at the same attempt, and running or about to start. The
-- permit of a task that is due later is free until a few seconds before, when a claim may begin. The permit of a task
-- whose queue stays paused is also free.
coalesce((
  select t.attempt = permit.attempt and (t.state = 'running' or t.state = 'ready'
    and (t.due_at is null or least(t.due_at, t.next_run_at) < now() + interval '10 seconds' and t.due_at < {{blocked}})
    and not {{queue_stays_paused}})
  from holdfast.tasks t where t.id = permit.task_id
), false)

-- {{ticket_queue}}: the name under which sentinels prove the ticket of a task t lost. The tickets of requeued tasks may
-- wait in a type queue, if there is one.
case
  when t.requeued and exists (select from holdfast.queues y where y.name = t.queue || '/' || t.type) then t.queue || '/' || t.type
  else t.queue
end

-- {{queue_stays_paused}}: whether the queue of a ready task t is paused, so that no claim of the task can begin or be
-- in progress. Its ticket may wait in the queue for the whole pause. While a transaction gives permits, no gate can
-- change.
exists (
  select from holdfast.gates g
  where {{pauses_queue}} and g.queue = split_part(t.queue, '.', 1) and g.closed_at < now() - interval '10 seconds'
    and (g.until is null or g.until > now() + interval '10 seconds')
)

-- {{bucket_permits}}: the number of permits in the bucket b of the limit g. It is 0 if the limit has no concurrency.
case when g.concurrency is null then 0 else (select count(*) from holdfast.permits p where p.gate_id = b.gate_id and p.bucket = b.bucket) end

-- {{next_bucket}}: the time until the next check of a bucket, and whether a bucket waits for permits; see buckets_next.
(
  select least(extract(epoch from b.next_at - clock_timestamp()), 86400)::float8 * 1000000 from holdfast.buckets b
  where (select g.lifted_at is null from holdfast.gates g where g.id = b.gate_id)
  order by b.next_at limit 1
) as after, exists (select from holdfast.buckets where next_at = {{blocked}}) as waiting

-- {{unparked}}: ends the park of a task that waits for something else from now on. Its next_run_at may be the end of the
-- park, a time that only the store computed. Without the reason, correct_tasks could not tell it from a wanted delay.
parked = null, next_run_at = case when parked is null then next_run_at else least(next_run_at, coalesce(started_at, created_at)) end

-- {{died_at}}: when the archived task t died. finished_at has the time at which it was archived.
least(t.finished_at, (select max(a.finished_at) from holdfast.attempts a where a.task_id = t.id))

-- {{blocked}}: the due time of a blocked task. It is not infinite, because statements compute with it.
timestamptz '9999-01-01 00:00:00+00'

-- {{gateless}}: whether no gate will release the blocked task t, and it waits neither for its turn nor for a slot.
t.next_run_at < {{blocked}} and not exists (
  select from holdfast.blocked b join holdfast.gates g on g.id = b.gate_id where b.task_id = t.id and b.attempt = t.attempt
) and not {{waits}} and not {{awaits_slot}}

-- {{waits}}: whether the task t waits for its turn among the ordered tasks of its key. With exists instead of coalesce,
-- the planner could read all waiting tasks.
(t.ordered is not null and coalesce((select true from holdfast.key_waits w where w.key = t.key and w.task_id = t.id), false))

-- {{awaits_slot}}: whether the task t waits for a slot of its topic.
(t.topic is not null and coalesce((select k.phase < 2 from holdfast.topic_tasks k where k.task_id = t.id), false))

-- {{topic_cursors}}: the cursors of the topic k in the subqueue q. There may still be rows of tasks that have ended.
coalesce((
    select min(first.id) from generate_series(0, 4) as p (phase), lateral (
      select o.task_id as id from holdfast.topic_tasks o join holdfast.tasks t on t.id = o.task_id
      where o.queue = q.name and o.topic = k.topic and o.phase = p.phase and t.state in ('ready', 'running')
      order by o.task_id limit 1
    ) first
  ), 0) as open, coalesce((
    select min(first.id) from unnest(array[0, 2, 3]) as p (phase), lateral (
      select o.task_id as id from holdfast.topic_tasks o join holdfast.tasks t on t.id = o.task_id
      where o.queue = q.name and o.topic = k.topic and o.phase = p.phase and t.state = 'ready' and t.started_at is null
      order by o.task_id limit 1
    ) first
  ), 0) as fresh, (select stored from holdfast.topic_state) as stored

-- {{topic_counts}}: the numbers of open tasks of the topic k in the subqueue q.
(select count(*) from (select from holdfast.topic_tasks o where o.queue = q.name and o.topic = k.topic and o.phase < 2 limit {{counted}}) c) as waiting,
(select count(*) from (select from holdfast.topic_tasks o where o.queue = q.name and o.topic = k.topic and o.phase = 2 limit {{counted}}) c) as slots,
(select count(*) from (select from holdfast.topic_tasks o where o.queue = q.name and o.topic = k.topic and o.phase > 2 limit {{counted}}) c) as later

-- {{dooms}}: whether the active task of the key o is dead and dooms the tasks behind it. If a person has retried it,
-- the store has not checked the key since.
o.dead = 2 and coalesce((select t.state = 'dead' from holdfast.tasks t where t.id = o.active), false)

-- {{ordered_key}}: the key o and its active task t.
o.key, coalesce(o.active, 0) as active, o.dead = 2 as doomed, coalesce(t.state, '') as state, coalesce(t.dead_at, t.created_at) as since,
  (select count(*) from (select from holdfast.key_waits w where w.key = o.key limit {{counted}}) counted) as waiting

-- {{claimed}}: the columns of a task t that a claim returns. Null means the usual value, because it takes no space in
-- the answer. Times are in binary form, because parsing their text takes longer than parsing the rest of the row. What
-- most tasks do not have is in one column, a row in binary form, because each column of each row takes time in the
-- server and in the process.
t.id, t.type, t.queue, t.attempt, t.max_attempts,
timestamptz_send(t.created_at), timestamptz_send(nullif(t.next_run_at, t.created_at)), timestamptz_send(t.started_at), t.payload,
case when t.unique_key is null and t.key is null and t.tags is null and t.topic is null and t.ordered is null and t.trace is null
    and t.last_error is null and t.idempotency_key is null and t.failures = 0 and t.crashes = 0 and t.deferrals = 0 then null
  else record_send(row(t.unique_key, t.key, t.tags, t.topic, t.ordered, t.trace, t.last_error, t.idempotency_key, t.failures, t.crashes, t.deferrals))
end

-- {{probe}}: whether the claimed task t has a permit of a breaker. The statement reads permits only if there are
-- breakers. With a join, the planner could read all gates for each task.
case when exists (select from holdfast.gates where {{gate_shape}} >= 64) then (
  select true from holdfast.permits p
  where p.task_id = t.id and p.attempt = t.attempt
    and coalesce((select g.kind = 'breaker' and g.lifted_at is null from holdfast.gates g where g.id = p.gate_id), false)
  limit 1
) end

-- {{history}}: the timeline of the WAL, which changes with every promotion but not with a restart. If the server
-- answers commits before they are on disk, a restart may lose some of them. Then the value also has the start time of
-- the server.
substring(pg_walfile_name(pg_current_wal_lsn()) for 8)
  || case when current_setting('synchronous_commit') = 'off' then '/' || extract(epoch from pg_postmaster_start_time()) else '' end

-- {{no_history}}: the value for a server that does not report its timeline.
''

-- {{presence_held}}: the workers of this schema that are present, as numbers of advisory locks. The key of a presence
-- lock is two numbers (objsubid 2). The key of a session for renewals is one number (objsubid 1).
select l.objid
from pg_locks l, holdfast.meta m
where m.key = 'incarnation' and l.locktype = 'advisory' and l.granted
  and l.database = (select oid from pg_database where datname = current_database())
  and l.classid = hashtext(m.value)::oid and l.objsubid in (1, 2)

-- {{window}}: the tasks with the ids from $11 on and below $5.
holdfast.tasks t where t.id >= $11::bigint and t.id < $5::bigint and

-- {{recorded}}: the numbers of tasks by queue, type and state, and the number of all tasks.
recorded as materialized (
  select queue, type, state, sum(n) as n
  from (
    select queue, type, state, n from holdfast.counts
    union all
    select queue, type, state, n from holdfast.count_deltas
  ) parts
  group by 1, 2, 3
), size as materialized (
  select coalesce(sum(n), 0) as n from recorded where state = 'all'
)

-- {{plan_column}}: the column of the plan, in a statement that inserts members of a plan. Other statements do not name
-- the column, and their parts are empty.

-- {{plan_value}}: the value of that column.

-- {{members}}: {{plan_column}} for members of a plan.
, plan

-- {{plan_of_uniform}}: the value for insert_uniform.
, $6::bigint

-- {{plan_of_insert}}: the value for insert.
, $8::bigint

-- {{plan_of_unique}}: the value for insert_unique.
, $15::bigint

-- {{uniform_tasks}}: what differs between the tasks of insert_uniform.
unnest($4::json[]) as a (payload)

-- {{traced_tasks}}: {{uniform_tasks}} for tasks with traces.
unnest($4::json[], $6::text[]) as a (payload, trace)

-- {{trace}}: the column of the trace, and its value.
, trace

-- {{count_stored}}: the numbers of stored tasks that have the queue $1 and the type $2. The ids ascend, so they are nearly
-- always in one block, and are not grouped then.
select $1, $2, 'all', ids[1] / {{block}}, cardinality(ids) from listed where ids[1] / {{block}} = ids[cardinality(ids)] / {{block}}
union all
select $1, $2, 'all', id / {{block}}, count(*) from listed, unnest(ids) as a (id)
where ids[1] / {{block}} <> ids[cardinality(ids)] / {{block}} group by 4

-- {{count_one}}: {{count_stored}} for a single task, because the rest of the statement costs less than the grouping.
select $1, $2, 'all', ids[1] / {{block}}, 1 from listed

-- {{running_ids}}: the ids of running tasks. With at most 10,000 tasks, the statement searches the tasks. With more
-- tasks, the ids are those that the workers reported with their last renewals. A live worker may have finished some of
-- these tasks and claimed others since. An ended worker owns the tasks that no janitor has taken back yet.
running_ids as materialized (
  select id, true as live from holdfast.tasks where (select n from size) <= 10000 and state = 'running'
  union
  select h.id, w.state = 'live'
  from holdfast.workers w cross join lateral unnest(w.tasks) as h (id)
  where (select n from size) > 10000 and (w.state = 'live' or not w.swept)
)

-- {{running_by_id}}: the tasks of running_ids. Because of the limit, the planner looks up each id.
running_ids r cross join lateral (
  select * from holdfast.tasks where id = r.id limit 1
) t

-- {{running_tasks}}: the tasks of {{running_by_id}}, as t.
(select distinct id from running_ids) r cross join lateral (
  select * from holdfast.tasks where id = r.id limit 1
) t where

-- {{dead_window}}: dead letters with the ids from $11 on and below $5.
holdfast.tasks t where t.dead_at is not null and t.id >= $11::bigint and t.id < $5::bigint and

-- {{unique_task}}: the task with the unique key $8.
holdfast.tasks t where t.unique_key = $8 and

-- {{keyed}}: the tasks with the key $19 and the ids from $11 on and below $5.
holdfast.keys k join holdfast.tasks t on t.id = k.task_id where k.key = $19 and k.task_id >= $11::bigint and k.task_id < $5::bigint and

-- {{listed_tasks}}: the tasks with the ids $14.
holdfast.tasks t where t.id = any($14::bigint[]) and

-- {{tagged}}: the records g of the tasks with the first of the tags $12.
holdfast.tags g join holdfast.tasks t on t.id = g.task_id where g.tag = ($12::text::json ->> 0)

-- {{tagged_dead}}: the records of {{tagged}} of dead tasks. An index has the dead tasks, so no other task is read.
holdfast.tags g join holdfast.tasks t on t.id = g.task_id and t.dead_at is not null where g.tag = ($12::text::json ->> 0)

-- {{grouped}}: the records d of the tasks with the fingerprint $15.
holdfast.deaths d join holdfast.tasks t on t.id = d.task_id where d.fingerprint = $15

-- {{died}}: the records d of deaths.
holdfast.deaths d join holdfast.tasks t on t.id = d.task_id where true

-- {{filter}}: the condition of list and count. Its parameters are those of {{condition}} and {{death}}.
{{condition}} and ($15 = '' and $16 = '' and $17 = '' and $18::int = 0
  or t.dead_at is not null and coalesce((select {{death}} from holdfast.deaths d where d.task_id = t.id), false))

-- {{condition}}: the condition for a task t. $1 has states, $2 is a type, $3 has subqueues, $4 is a part of the last
-- error, and $5 an exclusive upper bound of ids. $6 and $7 bound the time when a task ended, or was created if it has
-- not ended. $8 is a unique key, $9 and $10 bound the attempt, and $11 is an inclusive lower bound of ids. $12 is a
-- JSON list of tags, and $13 a JSON list of conditions for the payload. $14 has ids, $23 has ids of tasks to leave out,
-- $19 is a key, $21 a topic, $22 a batch, $24 a worker, and $25 an operation that has changed the task. $20 has the
-- part after the dot in the names of subqueues.
-- The condition for the payload is the last one, because it takes longest.
(cardinality($1::text[]) = 0 or t.state = any($1::text[]))
  and ($2 = '' or t.type = $2)
  and (cardinality($3::text[]) = 0 or t.queue = any($3::text[]))
  and (cardinality($20::text[]) = 0 or split_part(t.queue, '.', 2) = any($20::text[]))
  and ($4 = '' or position(lower($4) in lower(t.last_error)) > 0)
  and ($5::bigint = 0 or t.id < $5)
  and ($6::bigint = 0 or coalesce(t.finished_at, t.created_at) >= timestamptz 'epoch' + $6::bigint * interval '1 microsecond')
  and ($7::bigint = 0 or coalesce(t.finished_at, t.created_at) < timestamptz 'epoch' + $7::bigint * interval '1 microsecond')
  and ($8 = '' or t.unique_key = $8)
  and ($19 = '' or t.key = $19)
  and ($21 = '' or t.topic = $21)
  and ($22::bigint = 0 or t.plan = $22)
  and ($24::bigint = 0 or t.worker_id = $24)
  and ($25::bigint = 0 or exists (select from holdfast.audit c where c.task_id = t.id and c.operation_id = $25))
  and ($9::int = 0 or t.attempt >= $9)
  and ($10::int = 0 or t.attempt <= $10)
  and ($11::bigint = 0 or t.id >= $11)
  and ($12 = '[]' or t.tags::jsonb @> $12::jsonb)
  and (cardinality($14::bigint[]) = 0 or t.id = any($14::bigint[]))
  and (cardinality($23::bigint[]) = 0 or t.id <> all($23::bigint[]))
  and ($13 = '[]' or not exists (
    select from json_to_recordset($13::json) as p (path text[], value text, number numeric, text boolean)
    where not holdfast.payload_has(t.payload, p.path, p.value, p.number, p.text)
  ))

-- {{death}}: the condition for a record d of a death. $15 is a fingerprint, $16 a class, $17 a host, and $18 a status.
($15 = '' or d.fingerprint = $15)
  and ($16 = '' or d.class = $16)
  and ($17 = '' or d.host = $17)
  and ($18::int = 0 or d.status = $18)

-- {{idle_workers}}: the workers that have free executors, and have been live for the time after this part.
select queues, types from holdfast.workers
where state = 'live' and not draining and running < concurrency and lease_until > now() and types is not null and started_at < now() -

-- {{idle_for}}: the condition for the idle workers that take the task t.
t.type = any(idle.types) and (cardinality(idle.queues) = 0 or split_part(t.queue, '.', 1) = any(idle.queues))

-- {{fingerprints}}: the fingerprints of dead tasks after $1. For each, the statement reads one entry of the index.
found as (
  (select fingerprint from holdfast.deaths where fingerprint > $1 order by fingerprint limit 1)
  union all
  select (select d.fingerprint from holdfast.deaths d where d.fingerprint > f.fingerprint order by d.fingerprint limit 1)
  from found f
  where f.fingerprint is not null
)

-- {{later}}: the time when an inserted task is due, or null if it is due at once. at is in microseconds since 1970; 0
-- means no time. The part adds it in two steps: the server multiplies in floating point, and would round the end of the
-- year 9999 up.
case
  when at > 0 then nullif(greatest('epoch'::timestamptz + at / 1000000 * interval '1 second' + at % 1000000 * interval '1 microsecond', now()), now())
  when delay > 0 then now() + delay * interval '1 microsecond'
end as later

-- {{stored_queues}}: stores the queues $2. The caller has stored them, but a failover may have lost them since. No
-- janitor would find the tasks of a queue that is not stored.
queues as (
  insert into holdfast.queues (name)
  select distinct queue from unnest($2::text[]) as a (queue)
  where not exists (select from holdfast.queues q where q.name = a.queue)
  on conflict do nothing
)

-- {{random_step}}: how many versions of the settings to skip, so that no version is used again after a failover that
-- lost commits.
floor(random() * 1000)::bigint
