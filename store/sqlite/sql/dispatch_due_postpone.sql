-- Postpones refused tasks. Otherwise the oldest tasks of a queue that accepts no messages would block all others.
-- next_run_at does not change, because a refused ticket may have arrived nevertheless.
update tasks as t set due_at = ?2 + 3000000
from json_each(?1) as due
where t.id = due.value ->> 0 and t.attempt = due.value ->> 1 and +t.due_at = due.value ->> 2
