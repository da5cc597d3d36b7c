-- name: claim_live
-- gated is whether there are gates.
select id, exists (select 1 from gates where lifted_at is null) as gated from workers where id = ?1 and state = 'live'

-- name: claim
-- ?1 lists [task, attempt], ?2 is the present time, ?3 is the worker, and ?4 lists the wanted types. ?5 has the maximum
-- number of crashes of each type. ?6 is 1 if the tasks may wait in a buffer. ?7 is 1 if there are gates.
{{claim_first}}
from json_each(?1) as tickets
where tasks.id = tickets.value ->> 0 and tasks.attempt = tickets.value ->> 1 and {{claimable}}
returning {{claimed}}, ?7 and {{probe}}

-- name: claim_uniform
-- The variant of claim for tickets of one attempt number ?8. ?1 lists the tasks. The statement looks up each id instead
-- of joining the list, and reads no pair.
{{claim_first}}
where tasks.id in (select value from json_each(?1)) and tasks.attempt = ?8 and {{claimable}}
returning {{claimed}}, ?7 and {{probe}}

-- name: claim_refused
-- The state of the tasks that were not claimed, in the order of the tickets ?1. ?2 is the present time. gate is a
-- closed gate that applies to the task, or 0.
select coalesce(tasks.id, 0) as id, coalesce(tasks.type, '') as type, coalesce(tasks.queue, '') as queue,
  coalesce(tasks.state, '') as state, coalesce(tasks.attempt, 0) as attempt, coalesce(tasks.worker_id, 0) as worker_id,
  coalesce(tasks.due_at > ?2 and (tasks.next_run_at > ?2 or tasks.due_at = {{blocked}}), 0) as waits,
  coalesce(tasks.crashes, 0) as crashes,
  coalesce((select g.id from {{closed_gates}} order by {{gate_order}} limit 1), 0) as gate
from json_each(?1) as tickets left join tasks on tasks.id = tickets.value ->> 0
order by tickets.key

-- name: claim_held
-- The tasks that this worker has already claimed.
select {{claimed}}, {{probe}}, tasks.started_at, coalesce(tasks.buffered, 0)
from json_each(?1) as tickets join tasks on tasks.id = tickets.value ->> 0 and tasks.attempt = tickets.value ->> 1
where +tasks.worker_id = ?2 and tasks.state = 'running'

-- name: held
select {{columns}} from tasks indexed by tasks_worker
where tasks.worker_id = ?1 and tasks.state = 'running' and tasks.id > ?2 and tasks.id <= ?3
order by tasks.id
