-- Disables the time limits $1 of the session. It skips limits that this version of the server does not know.
select set_config(name, '0', false) as name from pg_settings where name = any($1::text[])
