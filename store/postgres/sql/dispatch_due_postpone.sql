-- Postpones refused tasks. Otherwise the oldest tasks of a queue that accepts no messages would block all others.
-- next_run_at does not change, because a refused ticket may have arrived nevertheless.
update holdfast.tasks set due_at = clock_timestamp() + interval '3 seconds' where id = any($1::bigint[])
