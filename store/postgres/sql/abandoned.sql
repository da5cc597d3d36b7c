-- One step over the ids above $1 up to $2. There is no index of running tasks, because every claim would have to update
-- it.
select {{columns}}
from holdfast.tasks t
where t.id > $1 and t.id <= $2 and t.state = 'running' and ($4::bigint = 0 or t.worker_id = $4)
  and not exists (select from holdfast.workers w where w.id = t.worker_id and w.state = 'live')
order by t.id
limit $3
