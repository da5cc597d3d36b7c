-- Ids up to $1 are given to no other task. A sequence cannot be set to 0, and need not be.
select setval('holdfast.tasks_id_seq', greatest($1::bigint, 1)) as last
