-- In the order of their turns: one that was refused goes behind the others.
select id, lane, task_ids as tasks, created_at < now() - interval '10 seconds' as late
from holdfast.outbox
where publish_after <= now() and ($2::text = '' or lane = $2) and lane <> all($3::text[])
order by publish_after, id
limit $1
for update skip locked
