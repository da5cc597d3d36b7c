-- name: unticket
-- A dispatcher locks the rows of the tasks whose tickets it publishes. The statement waits for the dispatcher and then
-- sees its mark. So if a ticket arrives before the mark is committed, the statement still makes the task due.
with locked as materialized (
  select t.id, t.due_at
  from (select * from unnest($1::bigint[], $2::int[]) as a (task, attempt) order by task) tickets,
  lateral ( -- one look-up by id; see claim
    select id, due_at from holdfast.tasks
    where id = tickets.task and attempt = tickets.attempt and state = 'ready'
    for update
  ) t
)
update holdfast.tasks t set due_at = least(t.next_run_at, now()), ticketed_at = null
from locked
where t.id = locked.id and locked.due_at is null

-- name: unticket_queue
-- One step over the ids above $1 up to $2. $4 is a subqueue. If $5 is not empty, the statement selects the tasks of that
-- type whose tickets may wait in the type queue. The statement waits for a row that a claim has locked. If the task is
-- still ready after that, its ticket is lost like the others. The statement does not see a task that a dispatcher is
-- publishing right now. If the ticket of such a task is also lost, a later sentinel proves it.
with picked as (
  select id from holdfast.tasks t
  where id > $1 and id <= $2 and queue = $4 and ($5 = '' or type = $5 and requeued) and state = 'ready'
    and (due_at is null or due_at = {{blocked}} and {{gateless}})
  order by id
  limit $3
  for update
), changed as (
  update holdfast.tasks t set due_at = least(t.next_run_at, now()), ticketed_at = null
  from picked
  where t.id = picked.id
  returning t.id
)
select count(*) as changed, coalesce(max(id), 0) as last from changed

-- name: sentinels_due
-- If a time lies in the future, the clock has been set back. Such times prove nothing and would delay the next
-- sentinels.
with picked as (
  select name,
    coalesce(greatest(drained_through, drained_at, held_through, held_at, proved_through) > now() + interval '2 seconds', false) as ahead
  from holdfast.queues
  where sentinel_sent_at is null
    or sentinel_sent_at <= now() - $1 * interval '1 microsecond'
      and (drained_through >= sentinel_sent_at or sentinel_sent_at <= now() - $2 * interval '1 microsecond')
    or greatest(sentinel_sent_at, drained_through, drained_at, held_through, held_at, proved_through) > now() + interval '2 seconds'
  order by name
  for update skip locked
)
update holdfast.queues q set sentinel_sent_at = now(),
  drained_through = case when not p.ahead then q.drained_through end, drained_at = case when not p.ahead then q.drained_at end,
  held_through = case when not p.ahead then q.held_through end, held_at = case when not p.ahead then q.held_at end,
  proved_through = case when not p.ahead then q.proved_through end
from picked p
where q.name = p.name
returning q.name as queue, q.sentinel_sent_at as at
