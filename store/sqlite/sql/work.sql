-- name: park
-- The statement skips a task that already waits for a later time or is blocked. ?4 is the present time, and ?2 is the
-- first wait at an attempt. Each further wait at the attempt is twice as long, up to ten minutes. Otherwise workers
-- would receive a million tasks of an unknown type again and again.
update tasks as t
set due_at = ?4 + max(?2, min(?2 << min(iif(t.park_attempt = t.attempt, t.park_count, 0), 16), 600000000)),
  next_run_at = ?4 + max(?2, min(?2 << min(iif(t.park_attempt = t.attempt, t.park_count, 0), 16), 600000000)),
  ticketed_at = null, parked = ?3,
  park_count = iif(t.park_attempt = t.attempt, t.park_count, 0) + 1, park_attempt = t.attempt
from json_each(?1) as tickets
where t.id = tickets.value ->> 0 and t.attempt = tickets.value ->> 1 and t.state = 'ready'
  and (t.due_at is null or t.due_at <= ?4 or t.next_run_at <= ?4 and t.due_at < {{blocked}})

-- name: passed_on
-- If several workers pass a ticket on, the statement records it at most every ten seconds.
update tasks as t set requeued = 1, ticketed_at = ?2
from json_each(?1) as tickets
where t.id = tickets.value ->> 0 and t.attempt = tickets.value ->> 1 and +t.ticketed_at is not null
  and (not t.requeued or +t.ticketed_at < ?2 - 10000000 or +t.ticketed_at > ?2)

-- name: drained
-- A sentinel that is not newer than the newest recorded one changes nothing. If the time of a sentinel lies in the
-- future, the clock was set back after the sentinel was sent. Its real time is unknown, so it changes nothing either.
update queues
set drained_through = min(?2, ?3), drained_at = ?3
where name = ?1 and ?2 <= ?3 + 2000000 and (drained_through is null or drained_through < min(?2, ?3))
