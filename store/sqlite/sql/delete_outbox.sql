delete from outbox where id in (select value from json_each(?1))
