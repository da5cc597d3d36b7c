-- In the order of their turns: one that was refused goes behind the others.
select id, lane, task_ids as tasks, created_at < ?1 - 10000000 as late
from outbox
where publish_after <= ?1 and (?3 = '' or lane = ?3) and lane not in (select value from json_each(?4))
order by publish_after, id
limit ?2
