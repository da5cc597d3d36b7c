-- The next task to become due.
select due_at as at from tasks where due_at is not null order by due_at limit 1
