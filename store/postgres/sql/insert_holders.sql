-- The tasks that hold the keys.
select id, unique_key as key from holdfast.tasks where unique_key = any($1::text[])
