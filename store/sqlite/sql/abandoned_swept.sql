-- They own nothing, and being over they never will again.
update runs set swept = 1 where id in (select value from json_each(?1)) and state <> 'live'
