-- A refused entry has a later publish_after, so it comes behind the others.
select id, queue, task_ids as tasks, created_at < ?1 - 10000000 as late
from outbox
where publish_after <= ?1 and (?3 = '' or queue = ?3) and queue not in (select value from json_each(?4))
order by publish_after, id
limit ?2
