-- The ids above $1 up to $2. No index lists running tasks, because claims would have to update it.
select {{columns}}
from holdfast.tasks t
where t.id > $1 and t.id <= $2 and t.state = 'running' and t.run_id = $3
