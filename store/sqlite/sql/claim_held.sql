-- Tasks that this run holds already.
select {{columns}}, {{payload}}
from json_each(?1) as asked join tasks on tasks.id = asked.value ->> 0 and tasks.attempt = asked.value ->> 1
where +tasks.run_id = ?2 and tasks.state = 'running'
