-- A task whose ticket was refused has a later due_at, and is as late as it is.
select id, attempt, lane, again, (extract(epoch from now() - least(due_at, next_run_at)) * 1000000)::bigint as late
from holdfast.tasks
where due_at <= now() and ($2::text = '' or lane = $2) and lane <> all($3::text[])
order by due_at
limit $1
for update skip locked
