-- The clock of now() stood still while the tickets were published. If the clock was set back meanwhile, a claim has
-- perhaps dropped a ticket as too early: that task gets another one when it is due again.
update holdfast.tasks set due_at = null, ticketed_at = clock_timestamp()
where id = any($1::bigint[]) and least(due_at, next_run_at) <= clock_timestamp()
