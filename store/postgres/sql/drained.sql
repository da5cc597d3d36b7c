-- A sentinel that an earlier one has overtaken, or that is reported twice, changes nothing.
update holdfast.lanes
set drained_through = least($2::timestamptz, now()), drained_at = now()
where name = $1 and (drained_through is null or drained_through < least($2::timestamptz, now()))
