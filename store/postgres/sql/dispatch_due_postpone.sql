-- Else the oldest ones, of a queue that takes nothing, would be all that is ever tried. When the
-- task may run stays the same: its ticket may have arrived all the same.
update holdfast.tasks set due_at = clock_timestamp() + interval '3 seconds' where id = any($1::bigint[])
