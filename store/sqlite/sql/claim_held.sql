-- The tasks that this worker has already claimed.
select {{columns}}, {{payload}}
from json_each(?1) as tickets join tasks on tasks.id = tickets.value ->> 0 and tasks.attempt = tickets.value ->> 1
where +tasks.worker_id = ?2 and tasks.state = 'running'
