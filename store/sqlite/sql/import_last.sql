-- New tasks get ids above ?1. A table into which no row was ever inserted has no row in sqlite_sequence.
update sqlite_sequence set seq = max(seq, ?1) where name = 'tasks';

insert into sqlite_sequence (name, seq) select 'tasks', ?1 where not exists (select 1 from sqlite_sequence where name = 'tasks')
