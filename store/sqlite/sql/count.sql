select tasks.state, count(*) as count from {{all_tasks}} {{filter}} group by tasks.state
