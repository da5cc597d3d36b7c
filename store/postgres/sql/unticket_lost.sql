-- One step over the blocks $1 of $2 ids each, up to the id $3. It changes at most $4 tasks. $5 and $6 are queues and
-- the times through which they are proved to be drained. $7 is the slack. A task that was inserted after the oldest
-- outbox entry of its queue may not have had a ticket yet; the outbox entry provides it. After the step, a block of $1
-- is listed if and only if it contains a ticketed task, and every task up to $8 has been read.
with proved as materialized (
  select p.queue, p.moment, (select min(o.created_at) from holdfast.outbox o where o.queue = p.queue) as uncertain
  from unnest($5::text[], $6::text[]::timestamptz[]) as p (queue, moment)
), ticketed as materialized (
  select t.id, t.queue, t.requeued, t.ticketed_at
  from unnest($1::bigint[]) as b (block), holdfast.tasks t
  where t.id > b.block * $2::bigint and t.id <= least((b.block + 1) * $2::bigint, $3)
    and t.state = 'ready' and t.due_at is null
), picked as materialized (
  select locked.id
  from (
    select c.id, c.ticketed_at from ticketed c join proved p on p.queue = c.queue
    where (p.uncertain is null or c.ticketed_at < p.uncertain)
      and c.ticketed_at < p.moment - case
        -- The tickets of these tasks went to the requeue queue, about which a sentinel proves nothing. The tasks get
        -- new tickets and do not count as lost.
        when c.requeued then 10 * $7::bigint * interval '1 microsecond'
        -- The ticket of a new task is published shortly after ticketed_at: see dispatch_outbox.sql.
        else least($7::bigint * interval '1 microsecond', interval '10 seconds')
      end
    order by c.id
    limit $4
  ) lost,
  lateral ( -- see claim.sql
    select id from holdfast.tasks
    where id = lost.id and state = 'ready' and due_at is null and ticketed_at = lost.ticketed_at
    for update skip locked
  ) locked
), changed as (
  update holdfast.tasks t set due_at = least(t.next_run_at, now()), ticketed_at = null
  from picked
  where t.id = picked.id
  returning t.id, t.requeued
), remaining as materialized (
  select distinct (c.id - 1) / $2::bigint as block from ticketed c
  where not exists (select from changed where changed.id = c.id)
), listed as (
  insert into holdfast.ticketed_blocks (block)
  select block from remaining
  on conflict do nothing
), unlisted as (
  delete from holdfast.ticketed_blocks t
  where t.block = any($1::bigint[]) and not exists (select from remaining where remaining.block = t.block)
), moved as (
  update holdfast.ticket_scan set through = $8 where through < $8
)
-- If all executors of a worker are busy, the worker may hold or return the same ticket whenever a sentinel passes. So
-- no ticket of the step counts as lost.
select count(*) as changed,
  count(*) filter (where not requeued and not exists (select from holdfast.workers where state = 'live' and running >= concurrency)) as lost
from changed
