-- The first of the unique keys that are taken, and by which task.
select a.unique_key as key, a.id + $2 as imported, t.id as holder
from holdfast.import_tasks a join holdfast.tasks t on t.unique_key = a.unique_key
where a.import_id = $1 and a.unique_key is not null
order by a.id
limit 5
