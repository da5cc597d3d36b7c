-- ?1 lists [task, attempt, due_at]. A task that moved on while its ticket was published is left alone; so is one that is
-- not due any more because the clock went back: whoever claims by its ticket is told to wait, and drops it.
update tasks as t set due_at = null, ticketed_at = ?2
from json_each(?1) as given
where t.id = given.value ->> 0 and t.attempt = given.value ->> 1 and +t.due_at = given.value ->> 2 and +t.due_at <= ?2
