-- The store gives no id up to ?1 to another task. A table into which nothing was ever inserted has no row.
update sqlite_sequence set seq = max(seq, ?1) where name = 'tasks';

insert into sqlite_sequence (name, seq) select 'tasks', ?1 where not exists (select 1 from sqlite_sequence where name = 'tasks')
