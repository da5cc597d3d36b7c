select {{columns}} from tasks indexed by tasks_worker
where tasks.worker_id = ?1 and tasks.state = 'running' and tasks.id > ?2 and tasks.id <= ?3
order by tasks.id
