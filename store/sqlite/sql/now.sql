-- Reads the file, to check that it can be read.
select count(*) as n from (select 1 from sqlite_schema limit 1)
