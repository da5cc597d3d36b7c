-- Takes away those limits on idle sessions and on waiting that this version of the server knows.
select set_config(name, '0', false) as name from pg_settings where name = any($1::text[])
