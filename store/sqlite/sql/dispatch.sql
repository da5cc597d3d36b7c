-- name: dispatch_due
-- If a ticket was refused, due_at is later than next_run_at. The column late is the time since the earlier of the two.
-- A task with a topic needs a slot.
select id, attempt, queue, requeued, due_at, ?1 - min(due_at, next_run_at) as late,
  topic is not null and coalesce((select k.phase <> 2 or k.queue <> tasks.queue from topic_tasks k where k.task_id = tasks.id), 1) as needs_slot
from tasks
where due_at <= ?1 and (?3 = '' or queue = ?3) and queue not in (select value from json_each(?4))
order by due_at, id
limit ?2

-- name: dispatch_due_postpone
-- Postpones refused tasks. Otherwise the oldest tasks of a queue that accepts no messages would block all others.
-- next_run_at does not change, because a refused ticket may have arrived nevertheless.
update tasks as t set due_at = ?2 + 3000000
from json_each(?1) as due
where t.id = due.value ->> 0 and t.attempt = due.value ->> 1 and +t.due_at = due.value ->> 2

-- name: dispatch_due_mark
-- ?1 lists [task, attempt, due_at], and ?2 is the present time. The statement does not mark a task that has changed
-- during the publishing. If the clock was set back during the publishing, a claim may have dropped a ticket as too
-- early. The statement does not mark such a task either, so the task gets another ticket when it is due again.
update tasks as t set due_at = null, ticketed_at = ?2
from json_each(?1) as due
where t.id = due.value ->> 0 and t.attempt = due.value ->> 1 and +t.due_at = due.value ->> 2 and min(t.due_at, t.next_run_at) <= ?2

-- name: dispatch_due_next
-- The next task of the queues to become due.
select due_at as at from tasks
where due_at < {{blocked}} and (?1 = '' or queue = ?1) and queue not in (select value from json_each(?2))
order by due_at limit 1

-- name: dispatch_outbox
-- A refused entry has a later publish_after, so it is behind the others.
select id, queue, task_ids as tasks, created_at < ?1 - 10000000 as late
from outbox
where publish_after <= ?1 and (?3 = '' or queue = ?3) and queue not in (select value from json_each(?4))
order by publish_after, id
limit ?2

-- name: dispatch_outbox_settle
-- Deletes the published outbox entries ?1, and postpones the refused entries ?2. The tickets of the tasks ?3 were
-- published much later than ticketed_at says. A sentinel that was sent in between must not prove these tickets lost, so
-- the statement updates ticketed_at. ?4 is the present time.
delete from outbox where id in (select value from json_each(?1));

update outbox set publish_after = ?4 + 3000000 where id in (select value from json_each(?2));

update tasks set ticketed_at = ?4
where id in (select value from json_each(?3)) and attempt = 1 and ticketed_at is not null
