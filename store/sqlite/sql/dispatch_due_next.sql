-- The next task of the lanes to become due.
select due_at as at from tasks
where due_at is not null and (?1 = '' or lane = ?1) and lane not in (select value from json_each(?2))
order by due_at limit 1
