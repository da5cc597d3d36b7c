-- name: verify_tickets_range
-- One step is enough, because an index finds the tasks. last is 0 at the end.
select 0 as after, iif(?1 = 0, 9223372036854775807, 0) as last

-- name: verify_tickets
-- The ids above ?1 up to ?2. ?3 is the slack, and ?4 how long a due task may wait. The statement uses the same proof as
-- unticket_lost_queues. A ticket has passed if a sentinel that was sent after it left the queue ten seconds ago. The
-- tickets of a paused queue wait in the broker even if workers are idle.
with evidence as materialized (
  select q.name, q.subqueue,
    iif(q.drained_through >= q.held_at + ?3, q.held_through, coalesce(q.proved_through, 0)) as proved,
    iif(exists (select 1 from gates g where g.queue = {{queue(q.subqueue)}} and {{pauses_queue}}), 0,
      max(iif(q.drained_at <= {{now}} - 10000000, q.drained_through, 0), iif(q.held_at <= {{now}} - 10000000, q.held_through, 0),
        coalesce(q.proved_through, 0))) as passed,
    coalesce((select min(o.created_at) from outbox o where o.queue = q.name), 9223372036854775807) as uncertain
  from (select *, substr(name || '/', 1, instr(name || '/', '/') - 1) as subqueue from queues) q
  where q.drained_at is not null and max(q.drained_through, q.drained_at, coalesce(q.held_at, 0)) <= {{now}} + 2000000
), idle as materialized (
  {{idle_workers}} {{now}} - ?4
), judged as (
  select t.id, case
      when not t.requeued and t.ticketed_at < e.proved - min(?3, 10000000)
        and not exists (select 1 from workers where state = 'live' and running >= concurrency) then 'lost_ticket'
      when t.ticketed_at < e.passed - iif(t.requeued, 10 * min(?3, 900000000000000000), min(?3, 10000000))
        and max(t.ticketed_at, t.next_run_at) < {{now}} - ?4
        and exists (select 1 from idle where {{idle_for}}) then 'overdue_ticket'
    end as code
  from evidence e cross join tasks t indexed by tasks_ticketed
  where t.queue = e.subqueue and e.name = {{ticket_queue}} and t.ticketed_at is not null and t.ticketed_at < min(max(e.proved, e.passed), e.uncertain)
    and t.id > ?1 and t.id <= ?2
)
select id, code from judged where code is not null limit 10000

-- name: verify_due
-- ?1 is how long a due task may wait, and ?2 is the present time. Without a fault, there are no such tasks.
with idle as materialized (
  {{idle_workers}} ?2 - ?1
), oldest as materialized (
  select id, type, queue from tasks indexed by tasks_due
  where due_at < ?2 - ?1 and exists (select 1 from idle)
  order by due_at
  limit 10000
)
select oldest.id, 'overdue_dispatch' as code from oldest
where exists (select 1 from idle where oldest.type in (select value from json_each(idle.types))
  and (idle.queues = '[]' or substr(oldest.queue || '.', 1, instr(oldest.queue || '.', '.') - 1) in (select value from json_each(idle.queues))))

-- name: verify_outbox
-- The oldest entries are enough: if a process serves the file, an entry is deleted soon.
select e.value as id, 'duplicated_entry' as code
from (select task_ids from outbox indexed by outbox_publish order by publish_after limit 1000) oldest, json_each(oldest.task_ids) e
group by e.value
having count(*) > 1
limit 10000

-- name: verify_open_range
-- The variant of verify_all_range for the blocks in which the counters show open tasks. A step ends at the end of a
-- block.
with open as materialized (
  select block from counts where block >= ?1 / {{block}} group by block having sum(iif(state = 'all', n, -n)) <> 0
), next as (
  select (select min(id) from tasks where id > max(?1, block * {{block}} - 1) and id < (block + 1) * {{block}}) as id
  from open
)
select coalesce(min(id) - 1, 0) as after, coalesce(min(min(id) - 1 + 20000, (min(id) / {{block}} + 1) * {{block}} - 1), 0) as last
from next

-- name: verify_all
-- The ids above ?1 up to ?2. ?3 is how long a due task may wait, ?4 how long a task may be running after its worker has
-- ended, and ?5 is the present time.
with idle as materialized (
  {{idle_workers}} ?5 - ?3
), judged as (
  select t.id, case
      when t.state = 'running' and t.started_at < ?5 - ?4 and w.id is null then 'zombie_missing'
      when t.state = 'running' and w.state <> 'live' and w.ended_at < ?5 - ?4 then 'zombie_ended'
      when t.state = 'running' and w.state = 'live' and w.lease_until < ?5 - ?4 then 'zombie_expired'
      when t.state = 'ready' and t.due_at = {{blocked}} then iif({{gateless}}, 'lost_record', null)
      when t.state = 'ready' and t.next_run_at < ?5 - ?3 and t.due_at > ?5 + 10000000
        and exists (select 1 from idle where {{idle_for}}) then 'overdue_postponed'
      when exists (select 1 from attempts a where a.task_id = t.id and a.attempt >= t.attempt) then 'duplicated_attempt'
    end as code
  from tasks t not indexed left join workers w on w.id = t.worker_id
  where t.id > ?1 and t.id <= ?2 and t.state in ('ready', 'running')
)
select id, code from judged where code is not null limit 10000

-- name: verify_suspicious
-- ?1 is how long a task may be running after its worker has ended, and ?2 is the present time.
select exists (
  select 1 from tasks t indexed by tasks_worker left join workers w on w.id = t.worker_id
  where t.worker_id is not null
    and (w.id is null or iif(w.state = 'live', w.lease_until, w.ended_at) < ?2 - ?1)
) as suspicious

-- name: verify_results
select part, findings, resume, checked_at is null as incomplete, max(0, ?1 - coalesce(checked_at, ?1)) as age from verify_results

-- name: count_tickets
-- The ids above ?1 up to ?2. ?3 is the present time.
select queue, sum(due_at is null) as ticketed, sum(coalesce(due_at <= ?3, 0)) as due
from tasks not indexed
where id > ?1 and id <= ?2 and state = 'ready'
group by queue
