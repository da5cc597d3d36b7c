-- A refused entry has a later publish_after, so it comes behind the others.
select id, queue, task_ids as tasks, created_at < now() - interval '10 seconds' as late
from holdfast.outbox
where publish_after <= now() and ($2::text = '' or queue = $2) and queue <> all($3::text[])
order by publish_after, id
limit $1
for update skip locked
