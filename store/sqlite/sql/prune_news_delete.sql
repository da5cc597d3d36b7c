delete from cancellations where id in (select value from json_each(?1))
