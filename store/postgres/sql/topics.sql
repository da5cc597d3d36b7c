-- name: topic_settings
-- If the process that gives slots is frozen, other processes take over after these times.
set local lock_timeout = '1s';
set local idle_in_transaction_session_timeout = '1s'

-- name: topic_last
-- The highest id that the sequence has given out.
select case when is_called then last_value else 0 end as id from holdfast.tasks_id_seq

-- name: topic_look
-- Makes $1 the process that gives slots, if it already is, or if the other process has been inactive for some time.
-- Then the statement changes one row. $2 is the highest id, which the caller read before this transaction got its own
-- transaction id. An insert gets its transaction id before the ids of tasks with topics. So when all earlier
-- transactions have ended, no transaction can store such a task with an id up to $2. The statement takes the next
-- sample then, if ids were given out since.
with here as materialized (
  select pg_snapshot_xmin(now)::text::bigint as oldest, pg_snapshot_xmax(now)::text::bigint as next from pg_current_snapshot() as s (now)
)
update holdfast.topic_state t
set owner = $1, looked_at = clock_timestamp(),
  stored = least(case when h.oldest >= t.sampled_at then t.sampled else t.stored end, $2),
  sampled = case when h.oldest >= t.sampled_at or h.next < t.sampled_at then $2 else least(t.sampled, $2) end,
  sampled_at = case when h.oldest >= t.sampled_at or h.next < t.sampled_at then pg_current_xact_id()::text::bigint else t.sampled_at end
from here h
where t.one_row = (
  select one_row from holdfast.topic_state
  where owner = $1 or abs(extract(epoch from clock_timestamp() - greatest(looked_at, timestamptz 'epoch'))) > 0.4
  for update skip locked
)

-- name: topic_arrived
-- Deletes at most $1 arrivals and returns them.
delete from holdfast.topic_arrivals where id in (select id from holdfast.topic_arrivals order by id limit $1) returning queue, topic

-- name: topic_release
-- Takes back the slots of tasks that have ended, or that will not start now. It returns two numbers for each topic:
-- slots that tasks hold, and slots that tasks have returned after an attempt. A person may be retrying one of the
-- tasks, which changes its phase.
with slots as materialized (
  select k.task_id, k.queue, k.topic, t.started_at is null as fresh,
    case
      when t.id is null or t.state not in ('ready', 'running') then 'ended'
      when t.state = 'ready' and t.due_at = {{blocked}} then 'blocked'
      when t.state = 'ready' and t.due_at is not null and least(t.due_at, t.next_run_at) > clock_timestamp() then 'later'
      else 'held'
    end as now
  from (select * from holdfast.topic_tasks where phase = 2 order by task_id offset 0) k
  left join lateral (
    select id, state, started_at, due_at, next_run_at from holdfast.tasks where id = k.task_id limit 1
  ) t on true
), ended as (
  delete from holdfast.topic_tasks k using slots s where k.task_id = s.task_id and s.now = 'ended' and k.phase = 2
), later as (
  update holdfast.topic_tasks k set phase = case when s.fresh then 3 else 4 end from slots s where k.task_id = s.task_id and s.now in ('later', 'blocked') and k.phase = 2
)
select queue, topic, count(*) filter (where now = 'held') as held, count(*) filter (where now in ('ended', 'later')) as released
from slots group by queue, topic

-- name: topic_released
-- Does nothing: topic_release has taken the slots back.
select 1

-- name: topic_heads
-- The lowest turn of each subqueue.
select q.name as queue, h.turn
from holdfast.queues q, lateral (select turn from holdfast.topic_turns t where t.queue = q.name order by turn limit 1) h

-- name: topic_executors
-- The numbers of executors of the live workers, by queue. The name is empty for workers that take all queues.
select coalesce(q.name, '') as queue, sum(w.concurrency)::int as n
from holdfast.workers w left join lateral unnest(w.queues) as q (name) on true
where w.state = 'live' and not w.draining
group by 1

-- name: topic_flows
-- The first $2 topics of each of the subqueues $1, in the order of their turns.
select f.queue, f.topic, f.turn, coalesce((select w.weight from holdfast.topic_weights w where w.topic = f.topic), 1) as weight
from unnest($1::text[]) as q (name), lateral (
  select queue, topic, turn from holdfast.topic_turns where queue = q.name order by turn, topic limit $2
) f

-- name: topics_first
-- The first two topics of each subqueue in which tasks wait.
select q.name as queue, f.topic
from holdfast.queues q, lateral (select topic from holdfast.topic_turns where queue = q.name order by turn, topic limit 2) f

-- name: topic_candidates
-- The first $2 waiting tasks of each phase, for each topic in the JSON document $1.
select l.flow, k.task_id as id
from json_to_recordset($1) as l (flow int, queue text, topic text), lateral (
  (select task_id from holdfast.topic_tasks where queue = l.queue and topic = l.topic and phase = 0 order by task_id limit $2)
  union all
  (select task_id from holdfast.topic_tasks where queue = l.queue and topic = l.topic and phase = 1 order by task_id limit $2)
) k

-- name: topic_admit
-- Starts the tasks of $1 that wait for slots and that no other transaction has locked. A task is treated as ticketed if
-- an outbox entry can contain it; see order_start, also about ticket_scan.
with scan as materialized (
  select through from holdfast.ticket_scan for share
), picked as materialized (
  select t.id
  from (select unnest($1::bigint[]) as id order by 1) l, lateral ( -- one look-up by id; see claim
    select id from holdfast.tasks
    where id = l.id and state = 'ready' and due_at = {{blocked}}
    for update skip locked
  ) t
), started as (
  update holdfast.tasks t
  set due_at = case when t.attempt > 1 then now() end, ticketed_at = case when t.attempt = 1 then clock_timestamp() end,
    next_run_at = least(t.next_run_at, now())
  from picked p
  where t.id = p.id
  returning t.id, t.queue, t.attempt = 1 as ticketed
), listed as (
  insert into holdfast.ticketed_blocks (block)
  select distinct (id - 1) / {{block_size}} from started where ticketed and id <= (select through from scan) order by 1
  on conflict do nothing
)
select id, queue, ticketed from started order by id

-- name: topic_admitted
-- Gives slots to the tasks $1, which topic_admit has returned.
update holdfast.topic_tasks set phase = 2 where task_id = any($1::bigint[])

-- name: topic_begin
-- Stores the turns of topics in which tasks have begun to wait, from the JSON document $1.
insert into holdfast.topic_turns (queue, topic, turn)
select queue, topic, turn from json_to_recordset($1) as l (queue text, topic text, turn float8)
on conflict do nothing

-- name: topic_turn
-- Stores the next turns of the topics in the JSON document $1. If a topic has no turn, none of its tasks waits.
with listed as materialized (
  select * from json_to_recordset($1) as l (queue text, topic text, turn float8)
), ended as (
  delete from holdfast.topic_turns t using listed l where t.queue = l.queue and t.topic = l.topic and l.turn is null
)
update holdfast.topic_turns t set turn = l.turn from listed l where t.queue = l.queue and t.topic = l.topic and l.turn is not null

-- name: topic_queue
-- Makes the tasks $1 wait for slots. They have topics, and the transaction has locked them.
with queued as (
  update holdfast.tasks set due_at = {{blocked}}, ticketed_at = null, {{unparked}} where id = any($1::bigint[])
  returning id, queue, topic, started_at is null as fresh
), waiting as (
  insert into holdfast.topic_tasks as k (task_id, queue, topic, phase)
  select id, queue, topic, case when fresh then 0 else 1 end from queued order by id
  on conflict (task_id) do update set queue = excluded.queue, phase = excluded.phase
)
insert into holdfast.topic_arrivals (queue, topic) select distinct queue, topic from queued

-- name: topic_stale
-- The tasks after $1 and up to $2 whose rows are outdated, and waiting tasks of topics that have no stored turn.
select k.task_id as id
from holdfast.topic_tasks k
left join lateral (select * from holdfast.tasks where id = k.task_id limit 1) t on true
where k.task_id > $1 and k.task_id <= $2 and case
  when t.id is null or t.state not in ('ready', 'running') then true
  when t.state = 'running' or t.ticketed_at is not null then k.phase <> 2
  when k.phase < 2 then t.due_at <> {{blocked}} or t.queue <> k.queue
    or not exists (select from holdfast.topic_turns e where e.queue = k.queue and e.topic = k.topic)
  else t.due_at = {{blocked}} and {{gateless}} -- no other event would release it
end
order by 1

-- name: topic_range
-- The last of the next $2 rows after $1, or 0 if there are no more rows.
select coalesce((select max(task_id) from (
  select task_id from holdfast.topic_tasks where task_id > $1 order by task_id limit $2
) part), 0) as id

-- name: topic_correct
-- Corrects the rows of the tasks $1. If another transaction has locked a waiting task, a later pass corrects its row. A
-- blocked task that no gate or turn would release waits for a slot.
with found as materialized (
  select k.task_id, t.id is null or t.state not in ('ready', 'running') as ended, t.queue, k.topic,
    case
      when t.state = 'running' or t.ticketed_at is not null then 2
      when t.due_at = {{blocked}} and (k.phase < 2 or {{gateless}}) then case when t.started_at is null then 0 else 1 end
      when t.started_at is null then 3
      else 4
    end as phase
  from holdfast.topic_tasks k
  left join lateral (
    select * from holdfast.tasks where id = k.task_id for no key update skip locked
  ) t on true
  where k.task_id = any($1::bigint[]) and (t.id is not null or coalesce((select false from holdfast.tasks e where e.id = k.task_id), true))
), ended as (
  delete from holdfast.topic_tasks k using found f where k.task_id = f.task_id and f.ended
), corrected as (
  update holdfast.topic_tasks k set queue = f.queue, phase = f.phase from found f where k.task_id = f.task_id and not f.ended
)
insert into holdfast.topic_arrivals (queue, topic)
select queue, topic from found where not ended and phase < 2
union
select queue, topic from holdfast.topic_tasks k
where k.task_id = any($1::bigint[]) and k.phase < 2 and not exists (select from found f where f.task_id = k.task_id)

-- name: topic_parts
-- The state of the topic $1 in each of the subqueues $2.
select q.name as queue, {{topic_cursors}}, {{topic_counts}}, coalesce((select w.weight from holdfast.topic_weights w where w.topic = $1), 1) as weight
from unnest($2::text[]) as q (name), lateral (select $1::text as topic) k
where exists (select from holdfast.topic_tasks o where o.queue = q.name and o.topic = k.topic)

-- name: topic_stored
-- The highest possible value of a cursor.
select stored as id from holdfast.topic_state

-- name: topic_list
-- At most $3 topics after $2 that have open tasks in the subqueue $1. The recursion reads one row for each topic.
with recursive k as (
  (select topic from holdfast.topic_tasks where queue = $1 and topic > $2 order by topic limit 1)
  union all
  select (select n.topic from holdfast.topic_tasks n where n.queue = $1 and n.topic > k.topic order by n.topic limit 1)
  from k where k.topic is not null
), q as (select $1::text as name)
select k.topic, q.name as queue, {{topic_cursors}}, {{topic_counts}},
  coalesce((select w.weight from holdfast.topic_weights w where w.topic = k.topic), 1) as weight
from (select topic from k where topic is not null limit $3) k, q

-- name: topic_waiting
-- The numbers of topics in which tasks wait, by subqueue, as the latest pass has found them.
select q.name as queue, (select count(*) from (select from holdfast.topic_turns t where t.queue = q.name limit {{counted}}) c) as topics
from holdfast.queues q
where exists (select from holdfast.topic_turns t where t.queue = q.name)

-- name: topic_of
-- The place of the task $1, which waits for a slot.
select k.queue, k.topic, coalesce((select w.weight from holdfast.topic_weights w where w.topic = k.topic), 1) as weight, (
    select count(*) from (
      (select from holdfast.topic_tasks a where a.queue = k.queue and a.topic = k.topic and a.phase = 0 and a.task_id < k.task_id limit {{counted}})
      union all
      (select from holdfast.topic_tasks a where a.queue = k.queue and a.topic = k.topic and a.phase = 1 and a.task_id < k.task_id limit {{counted}})
    ) ahead
  ) as ahead, (
    select count(*) from holdfast.topic_tasks s where s.queue = any(own.subqueues) and s.topic = k.topic and s.phase = 2
  ) as slots, (
    select count(distinct o.topic) from (
      select topic from holdfast.topic_turns where queue = any(own.subqueues) and topic <> k.topic limit {{counted}}
    ) o
  ) as others
from holdfast.topic_tasks k join holdfast.tasks t on t.id = k.task_id, lateral (
  select array_agg(name) as subqueues from holdfast.queues where split_part(name, '.', 1) = split_part(k.queue, '.', 1)
) own
where k.task_id = $1 and k.phase < 2 and t.state = 'ready' and t.due_at = {{blocked}}

-- name: topic_weight
-- The weight of the topic $1.
select coalesce((select weight from holdfast.topic_weights where topic = $1), 1) as weight

-- name: topic_weigh
-- Stores the weight $2 of the topic $1.
insert into holdfast.topic_weights (topic, weight) values ($1, $2) on conflict (topic) do update set weight = excluded.weight

-- name: topic_weights
select topic, weight from holdfast.topic_weights where weight <> 1 order by topic limit $1

-- name: import_topics
-- Stores rows for the imported tasks of $1 that have topics and are open.
insert into holdfast.topic_tasks (task_id, queue, topic, phase)
select id, queue, topic, case when started_at is null then 3 else 4 end from holdfast.tasks
where id = any($1::bigint[]) and topic is not null and state = 'ready'
on conflict do nothing
