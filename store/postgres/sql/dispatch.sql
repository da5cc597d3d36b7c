-- name: dispatch_due
-- If a ticket was refused, due_at is later than next_run_at. The column late is the time since the earlier of the two.
-- A task with a topic needs a slot.
select id, attempt, queue, requeued, (extract(epoch from now() - least(due_at, next_run_at)) * 1000000)::bigint as late,
  topic is not null and coalesce((select k.phase <> 2 or k.queue <> tasks.queue from holdfast.topic_tasks k where k.task_id = tasks.id), true) as needs_slot
from holdfast.tasks
where due_at <= now() and ((select $2::text) = '' or queue = (select $2::text)) and queue <> all((select $3::text[])::text[])
order by due_at
limit $1
for update skip locked

-- name: dispatch_due_postpone
-- Postpones refused tasks. Otherwise the oldest tasks of a queue that accepts no messages would block all others.
-- next_run_at does not change, because a refused ticket may have arrived nevertheless.
update holdfast.tasks set due_at = clock_timestamp() + interval '3 seconds' where id = any($1::bigint[])

-- name: dispatch_due_mark
-- now() is the start of the transaction, before the tickets were published. If the clock has been set back since then,
-- a claim may have dropped a ticket as too early. The statement does not mark such a task, so the task gets another
-- ticket when it is due again.
--
-- The row of ticket_scan is locked until the commit. So no scan for lost tickets passes a task whose mark is not yet
-- committed. If a scan has already passed a task, this statement lists the block of the task.
with scan as materialized (
  select through from holdfast.ticket_scan for share
), marked as (
  update holdfast.tasks set due_at = null, ticketed_at = clock_timestamp()
  where id = any($1::bigint[]) and least(due_at, next_run_at) <= clock_timestamp()
  returning id
), listed as (
  insert into holdfast.ticketed_blocks (block)
  select distinct (id - 1) / $2::bigint from marked where id <= (select through from scan) order by 1
  on conflict do nothing
)
select count(*) as n from marked

-- name: dispatch_due_next
-- The next task of the queues to become due, except the tasks $1, which the caller has. If that task was already due
-- when this transaction began, another caller has locked it, or a transaction has stored it since then.
select due_at <= now() as due, (extract(epoch from due_at - clock_timestamp()) * 1000000)::bigint as wait
from holdfast.tasks
where due_at < {{blocked}} and id <> all((select $1::bigint[])::bigint[]) and ((select $2::text) = '' or queue = (select $2::text)) and queue <> all((select $3::text[])::text[])
order by due_at
limit 1

-- name: dispatch_outbox_ripe
select exists (select from holdfast.outbox where publish_after <= now() and ($1::text = '' or queue = $1) and queue <> all($2::text[])) as ripe

-- name: dispatch_outbox
-- A refused entry has a later publish_after, so it is behind the others.
select id, queue, task_ids as tasks, created_at < now() - interval '10 seconds' as late
from holdfast.outbox
where publish_after <= now() and ($2::text = '' or queue = $2) and queue <> all($3::text[])
order by publish_after, id
limit $1
for update skip locked

-- name: dispatch_outbox_settle
-- Deletes the published outbox entries $1, and postpones the refused entries $2. The tickets of the tasks $3 were
-- published much later than ticketed_at says. A sentinel that was sent in between must not prove these tickets lost, so
-- the statement updates ticketed_at.
with late as (
  select id from holdfast.tasks
  where id = any($3::bigint[]) and state = 'ready' and due_at is null and attempt = 1
  order by id
  for update skip locked
), ticketed as (
  update holdfast.tasks t set ticketed_at = clock_timestamp() from late where t.id = late.id
), postponed as (
  update holdfast.outbox set publish_after = clock_timestamp() + interval '3 seconds' where id = any($2::bigint[])
)
delete from holdfast.outbox where id = any($1::bigint[])
