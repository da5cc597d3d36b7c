-- A table into which nothing was ever inserted has no row.
insert into sqlite_sequence (name, seq) values ('tasks', ?1)
