select {{columns}}, {{payload}}, tasks.again from tasks where tasks.id > ?1 and tasks.id <= ?2 order by tasks.id
