-- Dead letters have an index.
select {{columns}} from tasks where tasks.dead_at is not null and {{filter}} order by tasks.id desc limit ?6
