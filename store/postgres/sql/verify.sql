-- name: verify_tickets_range
-- The ids of the next step after the id $1: those of a listed block, or of tasks that no search for lost tickets has
-- read yet. last is 0 at the end.
with listed as (
  select greatest(block * {{block_size}}, $1::bigint) as after, (block + 1) * {{block_size}} as last
  from holdfast.ticketed_blocks
  where block >= $1::bigint / {{block_size}}
  order by block
  limit 1
), above as (
  select t.id - 1 as after, t.id - 1 + 20000 as last
  from holdfast.tasks t
  where t.id > greatest($1::bigint, (select through from holdfast.ticket_scan))
  order by t.id
  limit 1
), next as (
  select after, last from listed union all select after, last from above order by after, last limit 1
)
select coalesce(max(after), 0) as after, coalesce(max(last), 0) as last from next

-- name: verify_tickets
-- The ids above $1 up to $2. $3 is the slack, and $4 how long a due task may wait. The statement uses the same proof as
-- unticket_lost. A ticket has passed if a sentinel that was sent after it left the queue ten seconds ago. The tickets
-- of a paused queue wait in the broker even if workers are idle.
with evidence as materialized (
  select q.name,
    coalesce(case when q.drained_through >= q.held_at + $3::bigint * interval '1 microsecond' then q.held_through end, q.proved_through) as proved,
    case when not exists (select from holdfast.gates g where g.queue = split_part(split_part(q.name, '/', 1), '.', 1) and {{pauses_queue}}) then greatest(
      case when q.drained_at <= now() - interval '10 seconds' then q.drained_through end,
      case when q.held_at <= now() - interval '10 seconds' then q.held_through end,
      q.proved_through
    ) end as passed,
    (select min(o.created_at) from holdfast.outbox o where o.queue = q.name) as uncertain
  from holdfast.queues q
  where q.drained_at is not null and greatest(q.drained_through, q.drained_at, q.held_at) <= now() + interval '2 seconds'
), idle as materialized (
  {{idle_workers}} $4::bigint * interval '1 microsecond'
), ticketed as materialized (
  select t.id, t.type, t.queue, {{ticket_queue}} as proved_by, t.requeued, t.ticketed_at, t.next_run_at,
    case when t.requeued then 10 * $3::bigint * interval '1 microsecond'
      else least($3::bigint * interval '1 microsecond', interval '10 seconds') end as margin
  from holdfast.tasks t
  where t.id > $1 and t.id <= $2 and t.state = 'ready' and t.due_at is null and exists (select from evidence)
), judged as (
  select t.id, case
      when not t.requeued and t.ticketed_at < e.proved - t.margin
        and not exists (select from holdfast.workers where state = 'live' and running >= concurrency) then 'lost_ticket'
      when t.ticketed_at < e.passed - t.margin and greatest(t.ticketed_at, t.next_run_at) < now() - $4::bigint * interval '1 microsecond'
        and exists (select from idle where {{idle_for}}) then 'overdue_ticket'
    end as code
  from ticketed t join evidence e on e.name = t.proved_by
  where t.ticketed_at < greatest(e.proved, e.passed) and (e.uncertain is null or t.ticketed_at < e.uncertain)
)
select id, code from judged where code is not null order by id limit 10000

-- name: verify_due
-- $1 is how long a due task may wait. If nothing is wrong, the statement returns no task.
with idle as materialized (
  {{idle_workers}} $1::bigint * interval '1 microsecond'
), waiting as materialized (
  select t.id, t.type, t.queue from holdfast.tasks t
  where t.due_at < now() - $1::bigint * interval '1 microsecond' and exists (select from idle)
  order by t.due_at
  limit 10000
)
select t.id, 'overdue_dispatch' as code from waiting t where exists (select from idle where {{idle_for}}) order by t.id

-- name: verify_outbox
-- The oldest entries are enough: unless the broker is unavailable, an entry is deleted soon.
select e.id, 'duplicated_entry' as code
from (select unnest(task_ids) as id from (select task_ids from holdfast.outbox order by publish_after limit 1000) oldest) e
group by e.id
having count(*) > 1
order by e.id
limit 10000

-- name: verify_open_range
-- The variant of verify_all_range for the blocks in which the counters show open tasks. A step ends at the end of a
-- block.
with open as materialized (
  select block
  from (
    select block, state, n from holdfast.counts where block >= $1::bigint / {{block}}
    union all
    select block, state, n from holdfast.count_deltas where block >= $1::bigint / {{block}}
  ) counted
  group by block
  having sum(case when state = 'all' then n else -n end) <> 0
), next as (
  select t.id
  from open o
  cross join lateral (
    select min(id) as id from holdfast.tasks where id > greatest($1::bigint, o.block * {{block}} - 1) and id < (o.block + 1) * {{block}}
  ) t
  where t.id is not null
  order by o.block
  limit 1
)
select coalesce(max(id) - 1, 0) as after, coalesce(least(max(id) - 1 + 20000, (max(id) / {{block}} + 1) * {{block}} - 1), 0) as last
from next

-- name: verify_all
-- The ids above $1 up to $2. $3 is how long a due task may wait, and $4 how long a task may be running after its worker
-- has ended. Usually nearly all rows are ready tasks, so the statement does little work for a ready task without a
-- fault.
with idle as materialized (
  {{idle_workers}} $3::bigint * interval '1 microsecond'
), judged as (
  select t.id, case
      when t.state = 'running' then (
        select case
            when w.id is null then case when t.started_at < now() - $4::bigint * interval '1 microsecond' then 'zombie_missing' end
            when w.state <> 'live' then
              case when coalesce(w.ended_at, '-infinity') < now() - $4::bigint * interval '1 microsecond' then 'zombie_ended' end
            when w.lease_until < now() - $4::bigint * interval '1 microsecond' then 'zombie_expired'
          end
        from (select) one left join holdfast.workers w on w.id = t.worker_id
      )
      when t.due_at is null then case when t.ticketed_at is null then 'lost_record' end
      when t.due_at = {{blocked}} then case when {{gateless}} then 'lost_record' end
      when t.due_at > now() + interval '10 seconds' and t.next_run_at < now() - $3::bigint * interval '1 microsecond'
        and exists (select from idle where {{idle_for}}) then 'overdue_postponed'
    end as code
  from holdfast.tasks t
  where t.id > $1 and t.id <= $2 and t.state in ('ready', 'running')
), found as materialized (
  select id, code from judged where code is not null
), recorded as materialized (
  select task_id, max(attempt) as attempt from holdfast.attempts where task_id > $1 and task_id <= $2 group by task_id
)
select id, code from found
union all
select t.id, 'duplicated_attempt'
from recorded r, lateral ( -- a look-up by id for each task with recorded attempts, for any statistics
  select id from holdfast.tasks where id = r.task_id and attempt <= r.attempt and state in ('ready', 'running') offset 0
) t
where t.id not in (select id from found)
order by id
limit 10000

-- name: verify_suspicious
select exists (
  select from holdfast.workers
  where state <> 'live' and not swept and coalesce(ended_at, '-infinity') < now() - $1 * interval '1 microsecond'
    or state = 'live' and lease_until < now() - $1 * interval '1 microsecond'
) as suspicious

-- name: verify_results
select part, findings::text as findings, resume, checked_at is null as incomplete,
  coalesce(extract(epoch from now() - checked_at) * 1000000, 0)::bigint as age
from holdfast.verify_results

-- name: count_tickets
-- The ids above $1 up to $2.
select queue, count(*) filter (where due_at is null) as ticketed, count(*) filter (where due_at <= now()) as due
from holdfast.tasks
where id > $1 and id <= $2 and state = 'ready'
group by queue
