-- A sentinel that an earlier one has overtaken, or that is reported twice, changes nothing.
update lanes
set drained_through = min(?2, ?3), drained_at = ?3
where name = ?1 and (drained_through is null or drained_through < min(?2, ?3))
