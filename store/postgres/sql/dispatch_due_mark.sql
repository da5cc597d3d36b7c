-- The clock of now() stood still while the tickets were published.
update holdfast.tasks set due_at = null, ticketed_at = clock_timestamp() where id = any($1::bigint[])
