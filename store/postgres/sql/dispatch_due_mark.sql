-- now() is the start of the transaction, before the tickets were published. If the clock has been set back since then,
-- a claim may have dropped a ticket as too early. Such a task is not marked, so it gets another ticket when it is due
-- again.
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
