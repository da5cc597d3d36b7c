-- Reads the ids above $1 up to $2. There is no index of running tasks, because every claim would have to update it.
select {{columns}}
from holdfast.tasks t
where t.id > $1 and t.id <= $2 and t.state = 'running' and t.worker_id = $3
