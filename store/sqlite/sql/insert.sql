-- name: insert_queues
insert into queues (name, created_at) select value, ?2 from json_each(?1) where true on conflict do nothing

-- name: insert_first
-- The highest id that was ever assigned. No other transaction can assign ids, because this transaction has the write
-- lock.
select coalesce((select seq from sqlite_sequence where name = 'tasks'), 0) as id

-- name: insert_uniform
-- The variant of insert for tasks that differ only in their payloads and are due at once. Most calls have such tasks. ?1
-- lists the payloads; a long one is null. The ids ascend in the order of the list, without gaps. ?5 is the plan of the
-- tasks or null, and ?6 is the present time.
insert into tasks (type, queue, max_attempts, payload, plan, created_at, next_run_at, ticketed_at)
select ?2, ?3, ?4, value, ?5, ?6, ?6, ?6 from json_each(?1)

-- name: insert
-- ?1 lists [type, queue, payload, max attempts, due time, unique key, tags, key, place, topic, trace]. The payload is
-- null if it is long, and the due time if the task is due at once. Each of the last six is null if the task has none;
-- see ordered.Place. A due task with a topic waits for a slot; if it is ordered, it does so when a janitor finds that
-- it is due. ?2 is the present time, ?3 is the id of the first task, and ?4 is the plan of the tasks or null. The
-- statement skips a task if a stored task or an earlier task of the list has its unique key, or if the key is kept for a
-- deleted task.
insert into tasks (id, type, queue, payload, max_attempts, unique_key, tags, key, created_at, next_run_at, due_at, ticketed_at, ordered, topic, trace, plan)
select ?3 + e.key, e.value ->> 0, e.value ->> 1, e.value ->> 2, e.value ->> 3, e.value ->> 5, e.value ->> 6, e.value ->> 7,
  ?2, coalesce(e.value ->> 4, ?2), 
  case
    when e.value ->> 8 = 2 or e.value ->> 4 is null and e.value ->> 9 is not null and e.value ->> 8 is null then {{blocked}}
    when e.value ->> 4 is null and e.value ->> 9 is not null then ?2
    else e.value ->> 4
  end, iif(e.value ->> 4 is null and e.value ->> 8 is not 2 and e.value ->> 9 is null, ?2, null),
  iif(e.value ->> 8 is null, null, iif(e.value ->> 8 = 3, 2, 1)), e.value ->> 9, e.value ->> 10, ?4
from json_each(?1) as e
where e.value ->> 5 is null or not exists (select 1 from kept_keys where key = e.value ->> 5 and until > ?2)
on conflict (unique_key) where unique_key is not null do nothing

-- name: insert_ordered
-- Stores that tasks wait for their turns. ?1 is a list of [key, task].
insert into key_waits (key, task_id) select value ->> 0, value ->> 1 from json_each(?1)

-- name: insert_topics
-- Stores the topics of tasks, and that tasks of these topics have begun to wait. ?1 is a list of [task, queue, topic,
-- phase].
insert into topic_tasks (task_id, queue, topic, phase)
select value ->> 0, value ->> 1, value ->> 2, value ->> 3 from json_each(?1);

insert into topic_arrivals (queue, topic)
select distinct value ->> 1, value ->> 2 from json_each(?1) where value ->> 3 = 0

-- name: insert_active
-- Makes tasks the active ones of their keys. ?1 is a list of [key, task].
update key_order set active = l.value ->> 1 from json_each(?1) as l where key_order.key = l.value ->> 0

-- name: insert_release
-- Removes unique keys from tasks that were stored long enough ago, or that have ended, and from deleted tasks in the same
-- cases. ?1 is a list of [key, age in microseconds, ended]; an age of 0 is none. ?2 is the present time.
update tasks set unique_key = null from json_each(?1) as k
where tasks.unique_key = k.value ->> 0
  and (k.value ->> 1 > 0 and tasks.created_at <= ?2 - (k.value ->> 1) or k.value ->> 2 and tasks.state in ('done', 'dead', 'cancelled', 'archived'));

delete from kept_keys where key in (
  select o.key from json_each(?1) as k join kept_keys o on o.key = k.value ->> 0
  where (k.value ->> 1 > 0 and o.created_at <= ?2 - (k.value ->> 1) or k.value ->> 2)
    and not exists (select 1 from tasks where tasks.unique_key = o.key)
)

-- name: insert_kept
-- Keeps the unique keys of new tasks. ?1 is a list of [key, task, microseconds], and ?2 is the present time.
insert into kept_keys (key, task_id, created_at, until)
select value ->> 0, value ->> 1, ?2, ?2 + (value ->> 2) from json_each(?1) where true
on conflict (key) do update set task_id = excluded.task_id, created_at = excluded.created_at, until = excluded.until

-- name: insert_holders
-- The tasks that have the unique keys. A task that is deleted has no state.
select id, unique_key as key, state from tasks where unique_key in (select value from json_each(?1))
union all
select task_id, key, coalesce((select t.state from tasks t where t.id = task_id), '')
from kept_keys
where key in (select value from json_each(?1)) and not exists (select 1 from tasks t where t.unique_key = kept_keys.key)

-- name: insert_payloads
insert into payloads (task_id, payload) select value ->> 0, value ->> 1 from json_each(?1)

-- name: insert_tags
-- The rows of the tasks ?1.
insert into tags (tag, task_id)
select g.value, t.id from json_each(?1) as ids join tasks t on t.id = ids.value, json_each(t.tags) as g
where true
on conflict do nothing

-- name: insert_outbox
insert into outbox (queue, task_ids, created_at, publish_after) values (?1, ?2, ?3, ?3 + ?4)

-- name: committed_outbox
select id, queue, task_ids as tasks from outbox where id in (select value from json_each(?1)) and publish_after > ?2

-- name: delete_outbox
delete from outbox where id in (select value from json_each(?1))
