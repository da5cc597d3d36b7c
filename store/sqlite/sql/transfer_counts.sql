select (select count(*) from attempts) as attempts, coalesce((select max(id) from tasks), 0) as last
