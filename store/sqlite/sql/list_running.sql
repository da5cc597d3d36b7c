-- Few tasks run at a time, and they have an index.
select {{columns}} from tasks indexed by tasks_run where tasks.run_id is not null and {{filter}} order by tasks.id desc limit ?6
