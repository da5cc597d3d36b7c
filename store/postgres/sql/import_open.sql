-- Those that are under way, with what is staged of them.
select i.id, i.source, i.transfer, i.origin, i.shift, i.through, i.begun_at, i.committed_at,
  (select count(*) from holdfast.import_tasks t where t.import_id = i.id) as tasks
from holdfast.imports i
where i.committed_at is null
order by i.id
