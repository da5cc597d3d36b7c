-- One step over the ids above $1 up to $2. No index lists running tasks, for the sake of claims.
select {{columns}}
from holdfast.tasks t
where t.id > $1 and t.id <= $2 and t.state = 'running' and ($4::bigint = 0 or t.run_id = $4)
  and not exists (select from holdfast.runs r where r.id = t.run_id and r.state = 'live')
order by t.id
limit $3
