select lower(name) as name, setting from pg_settings where lower(name) = any($1::text[])
