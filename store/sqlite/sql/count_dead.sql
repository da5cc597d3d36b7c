select tasks.state, count(*) as count from tasks where tasks.dead_at is not null and {{filter}} group by tasks.state
