-- name: unticket
-- DispatchDue may be publishing the tickets of due tasks, and marks the tasks afterwards. It does not mark a task whose
-- due_at has changed meanwhile, so the statement changes due_at.
update tasks as t set due_at = t.due_at - 1
from json_each(?1) as tickets
where t.id = tickets.value ->> 0 and t.attempt = tickets.value ->> 1 and +t.due_at <= ?2 and t.state = 'ready';

update tasks as t set due_at = min(t.next_run_at, ?2), ticketed_at = null
from json_each(?1) as tickets
where t.id = tickets.value ->> 0 and t.attempt = tickets.value ->> 1 and +t.ticketed_at is not null

-- name: unticket_gateless
-- Makes the blocked tasks of the queue ?1 due if no gate will release them. ?2 is the present time.
update tasks as t set due_at = min(t.next_run_at, ?2)
where t.due_at = {{blocked}} and t.queue = ?1 and {{gateless}}

-- name: unticket_queue_last
select coalesce(max(ticketed_at), -1) as at from tasks where queue = ?1 and ticketed_at is not null

-- name: unticket_ids
-- ?1 lists [task, ticketed_at], and ?2 is the present time. The statement skips a task that has changed since the
-- caller read it.
update tasks as t set due_at = min(t.next_run_at, ?2), ticketed_at = null
from json_each(?1) as found
where t.id = found.value ->> 0 and +t.ticketed_at = found.value ->> 1

-- name: sentinels_due_any
select count(*) as n from (
  select 1 from queues where {{sentinels_due_which}} limit 1
)

-- name: sentinels_due
update queues set sentinel_sent_at = ?1,
  drained_through = iif({{queue_ahead}}, null, drained_through), drained_at = iif({{queue_ahead}}, null, drained_at),
  held_through = iif({{queue_ahead}}, null, held_through), held_at = iif({{queue_ahead}}, null, held_at),
  proved_through = iif({{queue_ahead}}, null, proved_through)
where {{sentinels_due_which}} returning name as queue, sentinel_sent_at as at
