select id, attempt, lane, again, (extract(epoch from now() - due_at) * 1000000)::bigint as late
from holdfast.tasks
where due_at <= now()
order by due_at
limit $1
for update skip locked
