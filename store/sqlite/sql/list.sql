-- From the newest task down.
select {{columns}} from tasks not indexed where {{filter}} order by tasks.id desc limit ?6
