-- ?1 lists [task, attempt, due_at], and ?2 is now. A task that has changed while its ticket was published is not
-- marked. If the clock was set back meanwhile, a claim may have dropped a ticket as too early. Such a task is not
-- marked, so it gets another ticket when it is due again.
update tasks as t set due_at = null, ticketed_at = ?2
from json_each(?1) as due
where t.id = due.value ->> 0 and t.attempt = due.value ->> 1 and +t.due_at = due.value ->> 2 and min(t.due_at, t.next_run_at) <= ?2
