-- How much there is of each task, which SQLite knows without reading it.
select t.id, coalesce(octet_length(t.payload), (select octet_length(p.payload) from payloads p where p.task_id = t.id), 0) + coalesce((
    select sum(octet_length(a.error) + coalesce(octet_length(a.stack), 0) + coalesce(octet_length(a.details), 0))
    from attempts a where a.task_id = t.id
  ), 0) as size
from tasks t
where t.id > ?1
order by t.id
limit ?2
