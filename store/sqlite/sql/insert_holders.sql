-- The tasks that hold the keys.
select id, unique_key as key from tasks where unique_key in (select value from json_each(?1))
