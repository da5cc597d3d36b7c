insert into payloads (task_id, payload) select value ->> 0, value ->> 1 from json_each(?1)
