-- The store gives no id up to ?1 to another task.
update sqlite_sequence set seq = max(seq, ?1) where name = 'tasks'
