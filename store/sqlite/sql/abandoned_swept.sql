-- These workers have ended and own no tasks, so they never will.
update workers set swept = 1 where id in (select value from json_each(?1)) and state <> 'live'
