-- The id before the next one. Whoever asks is about to write, or has begun to.
select coalesce((select seq from sqlite_sequence where name = 'tasks'), 0) as id
