delete from runs where id in (select value from json_each(?1))
