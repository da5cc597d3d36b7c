update outbox set publish_after = ?2 + 3000000 where id in (select value from json_each(?1))
