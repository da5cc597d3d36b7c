-- name: export
-- Every task with its data and its attempts. The JSON values in them are text, so that every character is kept.
select {{columns}}, {{payload}}, tasks.requeued,
  exists (select 1 from key_order o where o.key = tasks.key and o.active = tasks.id) as leads,
  coalesce(iif(tasks.park_attempt = tasks.attempt, tasks.park_count, 0), 0) as parks, (
    select json_group_array(json_object('name', d.name, 'attempt', d.attempt, 'value', d.value, 'at', d.at) order by d.name)
    from task_data d where d.task_id = tasks.id
  ) as data, (
    select json_group_array(json_object(
      'task', a.task_id, 'attempt', a.attempt, 'event', a.event, 'worker_name', a.worker_name, 'started_at', a.started_at,
      'finished_at', a.finished_at, 'class', a.class, 'error', a.error, 'stack', a.stack, 'details', a.details
    ) order by a.attempt, a.finished_at, a.event)
    from attempts a where a.task_id = tasks.id
  ) as attempts
from tasks
order by tasks.id

-- name: import
-- No imported task has a ticket, so a ready task gets a due_at. The statement skips a task whose id or unique key is
-- already in use, or whose unique key is kept for another task. ?26 is the present time.
insert into tasks (
  id, type, queue, state, payload, unique_key, attempt, max_attempts, failures, crashes, deferrals,
  next_run_at, created_at, started_at, finished_at, due_at, dead_at, requeued, last_error, parked, idempotency_key,
  park_count, park_attempt, tags, key, ordered, topic, trace
)
select
  ?1, ?2, ?3, ?4, ?5, nullif(?6, ''), ?7, ?8, ?9, ?10, ?11, ?12, ?13, nullif(?14, 0), nullif(?15, 0),
  iif(?4 = 'ready', ?12, null), iif(?4 = 'dead', ?15, null), ?16, nullif(?17, ''), nullif(?18, ''), nullif(?19, ''),
  nullif(?20, 0), iif(?20 > 0, ?7, null), nullif(?21, ''), nullif(?22, ''), nullif(?23, 0), nullif(?24, ''), nullif(?25, '')
where not exists (select 1 from kept_keys where key = ?6 and task_id <> ?1 and until > ?26)
on conflict do nothing

-- name: import_ordered
-- Stores the places of the ordered tasks in the JSON document ?1. Later checks of their keys decide which tasks start.
insert into key_order (key, active, dead)
select value ->> 'key', value ->> 'task', value ->> 'dead' from json_each(?1) where value ->> 'leads'
on conflict (key) do update set active = excluded.active, dead = excluded.dead;

insert into key_waits (key, task_id)
select value ->> 'key', value ->> 'task' from json_each(?1) where value ->> 'waits'
on conflict do nothing;

insert into key_checks (key) select distinct value ->> 'key' from json_each(?1);

update tasks set due_at = {{blocked}} from json_each(?1) as l where l.value ->> 'waits' and tasks.id = l.value ->> 'task'

-- name: import_attempt
insert into attempts (task_id, attempt, event, worker_name, started_at, finished_at, class, error, stack, details)
values (?1, ?2, ?3, ?4, nullif(?5, 0), ?6, ?7, ?8, nullif(?9, ''), nullif(?10, ''))

-- name: import_last
-- The next task gets an id above ?1. A table without earlier inserts has no row in sqlite_sequence.
update sqlite_sequence set seq = max(seq, ?1) where name = 'tasks';

insert into sqlite_sequence (name, seq) select 'tasks', ?1 where not exists (select 1 from sqlite_sequence where name = 'tasks')
