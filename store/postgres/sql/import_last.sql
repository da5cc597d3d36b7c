-- The store gives no id up to $1 to another task. A sequence cannot be set to 0, and need not be.
select setval('holdfast.tasks_id_seq', greatest($1::bigint, 1)) as last
