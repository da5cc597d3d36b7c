-- name: park
-- The statement skips a task that already waits for a later time or is blocked. $3 is the first wait at an attempt.
-- Each further wait at the attempt is twice as long, up to ten minutes. Otherwise workers would receive a million tasks
-- of an unknown type again and again.
with picked as materialized (
  select t.id, t.parks,
    greatest($3::bigint, least($3::bigint << least(t.parks, 16), 600000000)) * interval '1 microsecond' as wait
  from (select * from unnest($1::bigint[], $2::int[]) as a (task, attempt) order by task) tickets,
  lateral ( -- one look-up by id; see claim
    select id, case when park_attempt = attempt then park_count else 0 end as parks from holdfast.tasks
    where id = tickets.task and attempt = tickets.attempt and state = 'ready'
      and (due_at is null or due_at <= now() or next_run_at <= now() and due_at < {{blocked}})
    for update
  ) t
)
update holdfast.tasks t
set due_at = now() + picked.wait, next_run_at = now() + picked.wait, ticketed_at = null, parked = $4,
  park_count = picked.parks + 1, park_attempt = t.attempt
from picked
where t.id = picked.id

-- name: passed_on
-- If several workers pass a ticket on, the statement records it at most every ten seconds. It skips locked rows,
-- because another statement is claiming or marking them.
with picked as materialized (
  select t.id
  from (select * from unnest($1::bigint[], $2::int[]) as a (task, attempt) order by task) tickets,
  lateral ( -- one look-up by id; see claim
    select id from holdfast.tasks
    where id = tickets.task and attempt = tickets.attempt and state = 'ready' and due_at is null
      and (not requeued or ticketed_at < now() - interval '10 seconds' or ticketed_at > now())
    for update skip locked
  ) t
)
update holdfast.tasks t set requeued = true, ticketed_at = now()
from picked
where t.id = picked.id

-- name: drained
-- A sentinel that is not newer than the newest recorded one changes nothing. If the time of a sentinel lies in the
-- future, the clock was set back after the sentinel was sent. Its real time is unknown, so it changes nothing either.
update holdfast.queues
set drained_through = least($2::timestamptz, now()), drained_at = now()
where name = $1 and $2::timestamptz <= now() + interval '2 seconds'
  and (drained_through is null or drained_through < least($2::timestamptz, now()))
