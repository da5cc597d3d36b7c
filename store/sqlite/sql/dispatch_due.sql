-- A task whose ticket was refused has a later due_at, and is as late as it is.
select id, attempt, lane, again, due_at, ?1 - min(due_at, next_run_at) as late
from tasks
where due_at <= ?1 and (?3 = '' or lane = ?3) and lane not in (select value from json_each(?4))
order by due_at, id
limit ?2
