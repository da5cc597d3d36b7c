-- No index lists running tasks, for the sake of claims, so this reads all of them.
select {{columns}}
from holdfast.tasks t
where t.state = 'running' and ($1 = 0 or t.run_id = $1)
  and not exists (select from holdfast.runs r where r.id = t.run_id and r.state = 'live')
limit $2
