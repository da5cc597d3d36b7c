-- ?1 lists [task, ticketed_at], and ?2 is now. A task that has changed since it was found is skipped.
update tasks as t set due_at = min(t.next_run_at, ?2), ticketed_at = null
from json_each(?1) as found
where t.id = found.value ->> 0 and +t.ticketed_at = found.value ->> 1
