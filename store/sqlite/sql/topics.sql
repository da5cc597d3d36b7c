-- The last parameter of each statement is the present time.

-- name: topic_settings
-- Does nothing: a file has one writer at a time.
select 1

-- name: topic_last
-- The store needs no sample of the ids, because only one transaction at a time stores tasks.
select 0 as id

-- name: topic_look
-- Makes ?1 the process that gives slots, if it already is, or if the other process has been inactive for some time.
-- Then the statement changes one row. ?3 is the present time.
update topic_state set owner = ?1, looked_at = ?3 where owner = ?1 or abs(?3 - looked_at) > 400000

-- name: topic_arrived
-- Deletes at most ?1 arrivals and returns them.
delete from topic_arrivals where id in (select id from topic_arrivals order by id limit ?1) returning queue, topic

-- name: topic_release
-- Two numbers for each topic: slots that tasks hold, and slots that topic_released will take back after an attempt. ?1
-- is the present time.
select queue, topic, sum(now = 'held') as held, sum(now in ('ended', 'later')) as released
from (
  select k.queue, k.topic, case
      when t.id is null or t.state not in ('ready', 'running') then 'ended'
      when t.state = 'ready' and t.due_at = {{blocked}} then 'blocked'
      when t.state = 'ready' and min(t.due_at, t.next_run_at) > ?1 then 'later'
      else 'held'
    end as now
  from topic_tasks k left join tasks t on t.id = k.task_id
  where k.phase = 2
)
group by queue, topic

-- name: topic_released
-- Takes back the slots of tasks that have ended, or that will not start now. ?1 is the present time.
update topic_tasks set phase = iif(t.started_at is null, 3, 4)
from tasks t
where topic_tasks.phase = 2 and t.id = topic_tasks.task_id and t.state = 'ready' and (min(t.due_at, t.next_run_at) > ?1 or t.due_at = {{blocked}});

delete from topic_tasks
where phase = 2 and not exists (select 1 from tasks t where t.id = topic_tasks.task_id and t.state in ('ready', 'running'))

-- name: topic_heads
-- The lowest turn of each subqueue.
select name as queue, turn
from (select q.name, (select turn from topic_turns t where t.queue = q.name order by turn limit 1) as turn from queues q)
where turn is not null

-- name: topic_executors
-- The numbers of executors of the live workers, by queue. The name is empty for workers that take all queues.
select coalesce(q.value, '') as queue, sum(w.concurrency) as n
from workers w left join json_each(w.queues) as q
where w.state = 'live' and not w.draining
group by 1

-- name: topic_flows
-- The first ?2 topics of each of the subqueues ?1, in the order of their turns.
select f.queue, f.topic, f.turn, coalesce((select w.weight from topic_weights w where w.topic = f.topic), 1) as weight
from json_each(?1) as q cross join topic_turns f on f.queue = q.value
where (f.turn, f.topic) in (select n.turn, n.topic from topic_turns n where n.queue = q.value order by n.turn, n.topic limit ?2)

-- name: topics_first
-- The first two topics of each subqueue in which tasks wait.
select q.name as queue, f.topic
from queues q cross join topic_turns f on f.queue = q.name and f.topic in (select topic from topic_turns where queue = q.name order by turn, topic limit 2)

-- name: topic_candidates
-- The first ?2 waiting tasks of each phase, for each topic in the JSON document ?1.
select l.value ->> 'flow' as flow, k.task_id as id
from json_each(?1) as l cross join json_each('[0,1]') as waits
  cross join topic_tasks k on k.queue = l.value ->> 'queue' and k.topic = l.value ->> 'topic' and k.phase = waits.value
where k.task_id in ( -- the subquery does not use k, so that the statement reads no other rows of k
  select task_id from topic_tasks where queue = l.value ->> 'queue' and topic = l.value ->> 'topic' and phase = waits.value order by task_id limit ?2
)

-- name: topic_admit
-- Starts the tasks of ?1 that wait for slots. A task is treated as ticketed if an outbox entry can contain it; see
-- order_start. ?2 is the present time.
update tasks
set due_at = iif(attempt > 1, ?2, null), ticketed_at = iif(attempt = 1, ?2, null), next_run_at = min(next_run_at, ?2)
where id in (select value from json_each(?1)) and state = 'ready' and +due_at = {{blocked}}
returning id, queue, attempt = 1 as ticketed

-- name: topic_admitted
-- Gives slots to the tasks ?1, which topic_admit has returned.
update topic_tasks set phase = 2 where task_id in (select value from json_each(?1))

-- name: topic_begin
-- Stores the turns of topics in which tasks have begun to wait, from the JSON document ?1.
insert into topic_turns (queue, topic, turn)
select value ->> 'queue', value ->> 'topic', value ->> 'turn' from json_each(?1) where true
on conflict do nothing

-- name: topic_turn
-- Stores the next turns of the topics in the JSON document ?1. If a topic has no turn, none of its tasks waits.
delete from topic_turns
where (queue, topic) in (select value ->> 'queue', value ->> 'topic' from json_each(?1) where value ->> 'turn' is null);

update topic_turns set turn = l.value ->> 'turn'
from json_each(?1) as l
where topic_turns.queue = l.value ->> 'queue' and topic_turns.topic = l.value ->> 'topic' and l.value ->> 'turn' is not null

-- name: topic_queue
-- Makes tasks with topics wait for slots. ?1 lists them as [task, attempt, due_at]. The statement skips a task that has
-- changed.
insert into topic_tasks (task_id, queue, topic, phase)
select t.id, t.queue, t.topic, iif(t.started_at is null, 0, 1)
from json_each(?1) as due join tasks t on t.id = due.value ->> 0
where t.attempt = due.value ->> 1 and +t.due_at = due.value ->> 2 and t.state = 'ready'
on conflict (task_id) do update set queue = excluded.queue, phase = excluded.phase;

insert into topic_arrivals (queue, topic)
select distinct t.queue, t.topic
from json_each(?1) as due join tasks t on t.id = due.value ->> 0
where t.attempt = due.value ->> 1 and +t.due_at = due.value ->> 2 and t.state = 'ready';

update tasks as t set due_at = {{blocked}}, ticketed_at = null, {{unparked}}
from json_each(?1) as due
where t.id = due.value ->> 0 and t.attempt = due.value ->> 1 and +t.due_at = due.value ->> 2 and t.state = 'ready'

-- name: topic_stale
-- The tasks after ?1 and up to ?2 whose rows are outdated, and waiting tasks of topics that have no stored turn.
select k.task_id as id
from topic_tasks k left join tasks t on t.id = k.task_id
where k.task_id > ?1 and k.task_id <= ?2 and case
  when t.id is null or t.state not in ('ready', 'running') then true
  when t.state = 'running' or t.ticketed_at is not null then k.phase <> 2
  when k.phase < 2 then t.due_at <> {{blocked}} or t.queue <> k.queue
    or not exists (select 1 from topic_turns e where e.queue = k.queue and e.topic = k.topic)
  else t.due_at = {{blocked}} and {{gateless}} -- no other event would release it
end
order by 1

-- name: topic_range
-- The last of the next ?2 rows after ?1, or 0 if there are no more rows.
select coalesce((select max(task_id) from (
  select task_id from topic_tasks where task_id > ?1 order by task_id limit ?2
)), 0) as id

-- name: topic_correct
-- Corrects the rows of the tasks ?1. A blocked task that no gate or turn would release waits for a slot.
delete from topic_tasks
where task_id in (select value from json_each(?1))
  and not exists (select 1 from tasks t where t.id = topic_tasks.task_id and t.state in ('ready', 'running'));

update topic_tasks
set queue = t.queue, phase = case
  when t.state = 'running' or t.ticketed_at is not null then 2
  when t.due_at = {{blocked}} and (topic_tasks.phase < 2 or {{gateless}}) then iif(t.started_at is null, 0, 1)
  when t.started_at is null then 3
  else 4
end
from tasks t
where t.id = topic_tasks.task_id and topic_tasks.task_id in (select value from json_each(?1));

insert into topic_arrivals (queue, topic)
select distinct k.queue, k.topic from json_each(?1) as l join topic_tasks k on k.task_id = l.value where k.phase < 2

-- name: topic_parts
-- The state of the topic ?1 in each of the subqueues ?2.
select q.name as queue, {{topic_cursors}}, {{topic_counts}}, coalesce((select w.weight from topic_weights w where w.topic = ?1), 1) as weight
from (select value as name from json_each(?2)) as q, (select ?1 as topic) as k
where exists (select 1 from topic_tasks o where o.queue = q.name and o.topic = k.topic)

-- name: topic_stored
-- The highest possible value of a cursor.
select coalesce((select seq from sqlite_sequence where name = 'tasks'), 0) as id

-- name: topic_list
-- At most ?3 topics after ?2 that have open tasks in the subqueue ?1. The recursion reads one row for each topic.
with recursive k (topic) as (
  select (select topic from topic_tasks where queue = ?1 and topic > ?2 order by topic limit 1)
  union all
  select (select n.topic from topic_tasks n where n.queue = ?1 and n.topic > k.topic order by n.topic limit 1)
  from k where k.topic is not null
  limit ?3 + 1
)
select k.topic, q.name as queue, {{topic_cursors}}, {{topic_counts}},
  coalesce((select w.weight from topic_weights w where w.topic = k.topic), 1) as weight
from k, (select ?1 as name) as q
where k.topic is not null
limit ?3

-- name: topic_waiting
-- The numbers of topics in which tasks wait, by subqueue, as the latest pass has found them.
select q.name as queue, (select count(*) from (select 1 from topic_turns t where t.queue = q.name limit {{counted}})) as topics
from queues q
where exists (select 1 from topic_turns t where t.queue = q.name)

-- name: topic_of
-- The place of the task ?1, which waits for a slot.
select k.queue, k.topic, coalesce((select w.weight from topic_weights w where w.topic = k.topic), 1) as weight,
  (select count(*) from (select 1 from topic_tasks a where a.queue = k.queue and a.topic = k.topic and a.phase in (0, 1) and a.task_id < k.task_id limit {{counted}})) as ahead,
  (select count(*) from topic_tasks s where s.queue in (select name from queues q where substr(q.name || '.', 1, instr(q.name || '.', '.')) = substr(k.queue || '.', 1, instr(k.queue || '.', '.'))) and s.topic = k.topic and s.phase = 2) as slots,
  (select count(distinct topic) from (
    select topic from topic_turns where queue in (select name from queues q where substr(q.name || '.', 1, instr(q.name || '.', '.')) = substr(k.queue || '.', 1, instr(k.queue || '.', '.'))) and topic <> k.topic limit {{counted}}
  )) as others
from topic_tasks k join tasks t on t.id = k.task_id
where k.task_id = ?1 and k.phase < 2 and t.state = 'ready' and t.due_at = {{blocked}}

-- name: topic_weight
-- The weight of the topic ?1.
select coalesce((select weight from topic_weights where topic = ?1), 1) as weight

-- name: topic_weigh
-- Stores the weight ?2 of the topic ?1.
insert into topic_weights (topic, weight) values (?1, ?2) on conflict (topic) do update set weight = excluded.weight

-- name: topic_weights
select topic, weight from topic_weights where weight <> 1 order by topic limit ?1

-- name: import_topics
-- Stores rows for the imported tasks of ?1 that have topics and are open.
insert into topic_tasks (task_id, queue, topic, phase)
select t.id, t.queue, t.topic, iif(t.started_at is null, 3, 4)
from json_each(?1) as l join tasks t on t.id = l.value
where t.topic is not null and t.state = 'ready'
on conflict do nothing
