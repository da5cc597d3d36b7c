insert into outbox (queue, task_ids, created_at, publish_after) values (?1, ?2, ?3, ?3 + ?4) returning id
