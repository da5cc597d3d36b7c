select {{columns}}, {{payload}} from tasks where tasks.id in (select value from json_each(?1))
