-- The tasks that this worker has already claimed.
select {{claimed}}, now()
from unnest($2::bigint[], $3::int[]) as tickets (task, attempt)
join holdfast.tasks t on t.id = tickets.task and t.attempt = tickets.attempt
where t.worker_id = $1 and t.state = 'running'
