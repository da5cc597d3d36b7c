insert into payloads (task_id, payload) values (?1, ?2)
