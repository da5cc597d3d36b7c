-- A sentinel that an earlier one has overtaken, or that is reported twice, changes nothing. A sentinel from the future
-- was sent before the clock was set back, at an unknown time.
update lanes
set drained_through = min(?2, ?3), drained_at = ?3
where name = ?1 and ?2 <= ?3 + 2000000 and (drained_through is null or drained_through < min(?2, ?3))
