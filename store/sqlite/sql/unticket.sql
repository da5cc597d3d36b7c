update tasks as t set due_at = min(t.next_run_at, ?2), ticketed_at = null
from json_each(?1) as asked
where t.id = asked.value ->> 0 and t.attempt = asked.value ->> 1 and +t.ticketed_at is not null
