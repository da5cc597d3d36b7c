select {{columns}} from tasks indexed by tasks_run
where tasks.run_id = ?1 and tasks.state = 'running'
order by tasks.id
