-- The next task of the queues to become due.
select due_at as at from tasks
where due_at is not null and (?1 = '' or queue = ?1) and queue not in (select value from json_each(?2))
order by due_at limit 1
