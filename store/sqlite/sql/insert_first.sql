-- The largest id that was ever given out. No other transaction gives out ids, because the caller writes in this one.
select coalesce((select seq from sqlite_sequence where name = 'tasks'), 0) as id
