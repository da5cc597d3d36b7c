-- Every task is in exactly one of these indexes.
select 'ready' as state, (select count(*) from tasks where ticketed_at is not null) + (select count(*) from tasks where due_at is not null) as count
union all
select 'running', count(*) from tasks where worker_id is not null
union all
select state, count(*) from tasks where finished_at is not null group by state
