-- The next task of the queues to become due, except the tasks $1 that were just given. If such a task was already due
-- when this transaction began, another caller has locked it, or it was stored since.
select due_at <= now() as due, (extract(epoch from due_at - clock_timestamp()) * 1000000)::bigint as wait
from holdfast.tasks
where due_at is not null and id <> all($1::bigint[]) and ($2::text = '' or queue = $2) and queue <> all($3::text[])
order by due_at
limit 1
