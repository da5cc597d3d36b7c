select tasks.state, count(*) as count from tasks where tasks.run_id is not null and {{filter}} group by tasks.state
