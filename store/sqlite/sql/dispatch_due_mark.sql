-- ?1 lists [task, attempt, due_at]. A task that moved on while its ticket was published is left alone, and so
-- is one that is not due any more because the clock was set back: a claim has perhaps dropped its ticket as too early.
update tasks as t set due_at = null, ticketed_at = ?2
from json_each(?1) as given
where t.id = given.value ->> 0 and t.attempt = given.value ->> 1 and +t.due_at = given.value ->> 2 and min(t.due_at, t.next_run_at) <= ?2
