update tasks as t set due_at = min(t.next_run_at, ?2), ticketed_at = null
from json_each(?1) as tickets
where t.id = tickets.value ->> 0 and t.attempt = tickets.value ->> 1 and +t.ticketed_at is not null
