select {{columns}}, {{payload}} from tasks where tasks.id = ?1
