-- A task that waits for a later time has moved on. ?4 is now and ?2 the first wait at an attempt. Each further one is
-- twice as long, up to ten minutes: otherwise workers would get a million tasks of an unknown type again and again.
-- Park counts of other attempts do not count.
update tasks as t
set due_at = ?4 + max(?2, min(?2 << min(iif(t.park_attempt = t.attempt, t.park_count, 0), 16), 600000000)),
  next_run_at = ?4 + max(?2, min(?2 << min(iif(t.park_attempt = t.attempt, t.park_count, 0), 16), 600000000)),
  ticketed_at = null, parked = ?3,
  park_count = iif(t.park_attempt = t.attempt, t.park_count, 0) + 1, park_attempt = t.attempt
from json_each(?1) as asked
where t.id = asked.value ->> 0 and t.attempt = asked.value ->> 1 and t.state = 'ready'
  and (t.due_at is null or t.due_at <= ?4 or t.next_run_at <= ?4)
