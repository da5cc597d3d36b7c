-- The application id of the file, whether the file has a table of migrations, and the first other table.
select (select application_id from pragma_application_id) as application,
  exists (select 1 from sqlite_schema where name = 'migrations') as migrated,
  coalesce((select name from sqlite_schema where type = 'table' and name <> 'migrations' and name not like 'sqlite_%' order by name limit 1), '') as "table"
