-- New tasks get ids above $1. A sequence cannot be set to 0, and 1 does no harm.
select setval('holdfast.tasks_id_seq', greatest($1::bigint, 1)) as last
