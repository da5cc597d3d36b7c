-- name: unticket_lost_resume
update holdfast.ticket_scan set resume = $1 where resume <> $1

-- name: unticket_lost_begin
-- Once a day the scan starts again with the first task, because the list does not contain changes made by hand.
update holdfast.ticket_scan set through = 0, resume = 0, begun_at = now()
where begun_at < now() - interval '1 day' or begun_at > now()

-- name: unticket_lost_bound
select coalesce((select max(id) from holdfast.tasks), 0) as bound, through, resume,
  (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint as started
from holdfast.ticket_scan

-- name: unticket_lost_writers
-- The transactions that may have taken an id and not committed it. An insert locks the table before it takes an id,
-- until its transaction ends. Other writers hold the same lock. A snapshot does not show all of these transactions,
-- because a transaction may take an id before it has a transaction ID.
select virtualtransaction from pg_locks
where locktype = 'relation' and relation = 'holdfast.tasks'::regclass and mode = 'RowExclusiveLock' and granted
  and database = (select oid from pg_database where datname = current_database())

-- name: unticket_lost_settings
-- Dispatchers wait while a step holds its lock or waits for it. So both times are limited, even if the process of the
-- step is frozen. The isolation level is set because each statement of a step must see everything that was committed
-- before it. Otherwise the lock would not order steps and dispatchers.
set transaction isolation level read committed;
set local lock_timeout = '200ms';
set local idle_in_transaction_session_timeout = '2s'

-- name: unticket_lost_lock
-- Until the commit, no dispatcher can mark a task as ticketed. The next statement sees all earlier marks.
select through from holdfast.ticket_scan for update

-- name: unticket_lost
-- One step over the blocks $1, which have $2 ids each, up to the id $3. It changes at most $4 tasks. $5 has queues, and
-- $6 the times through which they are proved to be drained. $7 is the slack. A task that was inserted after the oldest
-- outbox entry of its queue may not have had a ticket yet; its outbox entry provides the ticket. After the step, a
-- block of $1 is listed if and only if it contains a ticketed task, and every task up to $8 has been read.
with proved as materialized (
  select p.queue, p.moment, (select min(o.created_at) from holdfast.outbox o where o.queue = p.queue) as uncertain
  from unnest($5::text[], $6::text[]::timestamptz[]) as p (queue, moment)
), ticketed as materialized (
  select t.id, {{ticket_queue}} as queue, t.requeued, t.ticketed_at
  from unnest($1::bigint[]) as b (block), holdfast.tasks t
  where t.id > b.block * $2::bigint and t.id <= least((b.block + 1) * $2::bigint, $3)
    and t.state = 'ready' and t.due_at is null
), picked as materialized (
  select locked.id
  from (
    select c.id, c.ticketed_at from ticketed c join proved p on p.queue = c.queue
    where (p.uncertain is null or c.ticketed_at < p.uncertain)
      and c.ticketed_at < p.moment - case
        -- The tickets of these tasks went to a requeue queue, about which a sentinel proves nothing, or to a type queue.
        -- The tasks get new tickets, but their old tickets are not treated as lost.
        when c.requeued then 10 * $7::bigint * interval '1 microsecond'
        -- The ticket of a new task is published shortly after ticketed_at: see dispatch_outbox.
        else least($7::bigint * interval '1 microsecond', interval '10 seconds')
      end
    order by c.id
    limit $4
  ) lost,
  lateral ( -- one look-up by id; see claim
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
-- the step treats no ticket as lost.
select count(*) as changed,
  count(*) filter (where not requeued and not exists (select from holdfast.workers where state = 'live' and running >= concurrency)) as lost
from changed

-- name: unticket_lost_blocks
-- At most $4 listed blocks, from block $1 on and up to the id $2, and the block of the first id above $6 and up to $3.
-- A block has $5 ids.
(
  select block, false as above from holdfast.ticketed_blocks
  where block >= $1 and block <= ($2::bigint - 1) / $5::bigint
  order by block
  limit $4
)
union all
(
  select (id - 1) / $5::bigint, true from holdfast.tasks
  where id > $6 and id <= $3
  order by id
  limit 1
)
order by above, block

-- name: unticket_lost_proofs
-- The time through which each queue is proved to be drained. A sentinel becomes a proof when another sentinel, sent at
-- least $1 microseconds after the first one came out, has come out too. In a busy queue the newest sentinel is always
-- recent. So the statement keeps an older sentinel, and replaces it only when it has become a proof.
with picked as materialized (
  select name, held_at is null as free, proved_through,
    case when drained_through >= held_at + $1 * interval '1 microsecond' then held_through end as moment
  from holdfast.queues
  where drained_at is not null
  order by name
  for update
), held as (
  update holdfast.queues q set held_through = q.drained_through, held_at = q.drained_at,
    proved_through = coalesce(p.moment, q.proved_through)
  from picked p
  where q.name = p.name and (p.free or p.moment is not null)
    and (q.held_at is distinct from q.drained_at or q.proved_through is distinct from p.moment)
)
select name as queue, coalesce(moment, proved_through)::text as moment from picked
where coalesce(moment, proved_through) is not null
