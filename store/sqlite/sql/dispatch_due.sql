-- If a ticket was refused, due_at is later than next_run_at. The delay counts from the earlier time.
select id, attempt, queue, requeued, due_at, ?1 - min(due_at, next_run_at) as late
from tasks
where due_at <= ?1 and (?3 = '' or queue = ?3) and queue not in (select value from json_each(?4))
order by due_at, id
limit ?2
