select tasks.state, count(*) as count from tasks not indexed where {{filter}} group by tasks.state
