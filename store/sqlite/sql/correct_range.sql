-- The first id above ?1, and the largest id of all.
select coalesce((select min(id) from tasks where id > ?1), 0) as first, coalesce((select max(id) from tasks), 0) as last
