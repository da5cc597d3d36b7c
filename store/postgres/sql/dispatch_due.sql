-- If a ticket was refused, due_at is later than next_run_at. The delay counts from the earlier time.
select id, attempt, queue, requeued, (extract(epoch from now() - least(due_at, next_run_at)) * 1000000)::bigint as late
from holdfast.tasks
where due_at <= now() and ($2::text = '' or queue = $2) and queue <> all($3::text[])
order by due_at
limit $1
for update skip locked
