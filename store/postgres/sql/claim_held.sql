-- Tasks that this run holds already.
select {{claimed}}, now()
from unnest($2::bigint[], $3::int[]) as asked (task, attempt)
join holdfast.tasks t on t.id = asked.task and t.attempt = asked.attempt
where t.run_id = $1 and t.state = 'running'
