-- Their attempts and payloads go with them. The plus keeps SQLite from looking through all that are over.
delete from tasks where id in (select value from json_each(?1)) and +state = ?2 and +finished_at < ?3
