select {{columns}} from {{all_tasks}} {{filter}} order by tasks.id desc limit ?8
