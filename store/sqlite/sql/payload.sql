coalesce(tasks.payload, (select p.payload from payloads p where p.task_id = tasks.id)) as payload
