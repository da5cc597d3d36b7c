-- Ids up to ?1 are given to no other task.
update sqlite_sequence set seq = max(seq, ?1) where name = 'tasks'
