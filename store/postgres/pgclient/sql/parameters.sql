-- The values of the parameters $1 in this session, by names in lower case.
select lower(name) as name, setting from pg_settings where lower(name) = any($1::text[])
