-- name: claim_live
select id from workers where id = ?1 and state = 'live'

-- name: claim
-- ?1 lists [task, attempt] and ?2 lists the wanted types. ?3 is the worker and ?4 is now. ?5 has how many crashes each
-- type allows. ?6 is 1 if the tasks may wait in a buffer.
update tasks
set state = 'running', worker_id = ?3, started_at = ?4, due_at = null, ticketed_at = null, parked = null, buffered = nullif(?6, 0)
from json_each(?1) as tickets
where tasks.id = tickets.value ->> 0 and tasks.attempt = tickets.value ->> 1 and tasks.state = 'ready'
  and tasks.type in (select value from json_each(?2))
  and (tasks.crashes = 0 or tasks.crashes <= (select k.value from json_each(?5) as k where k.key = tasks.type))
  -- The task may run now. A due_at later than next_run_at only postpones the next try to publish.
  and (tasks.due_at is null or tasks.due_at <= ?4 or tasks.next_run_at <= ?4)
returning {{columns}}, {{payload}}

-- name: claim_refused
-- The state of the tasks that were not claimed, in the order of the tickets.
select coalesce(t.id, 0) as id, coalesce(t.type, '') as type, coalesce(t.queue, '') as queue,
  coalesce(t.state, '') as state, coalesce(t.attempt, 0) as attempt, coalesce(t.worker_id, 0) as worker_id,
  coalesce(t.due_at > ?2 and t.next_run_at > ?2, 0) as waits,
  coalesce(t.crashes, 0) as crashes
from json_each(?1) as tickets left join tasks t on t.id = tickets.value ->> 0
order by tickets.key

-- name: claim_held
-- The tasks that this worker has already claimed.
select {{columns}}, {{payload}}
from json_each(?1) as tickets join tasks on tasks.id = tickets.value ->> 0 and tasks.attempt = tickets.value ->> 1
where +tasks.worker_id = ?2 and tasks.state = 'running'

-- name: held
select {{columns}} from tasks indexed by tasks_worker
where tasks.worker_id = ?1 and tasks.state = 'running' and tasks.id > ?2 and tasks.id <= ?3
order by tasks.id
