-- What list and count choose: states, type, lane, part of the last error, and ids below one.
(?1 = '[]' or tasks.state in (select value from json_each(?1)))
and (?2 = '' or tasks.type = ?2)
and (?3 = '' or tasks.lane = ?3)
and (?4 = '' or contains(tasks.last_error, ?4))
and (?5 = 0 or tasks.id < ?5)
