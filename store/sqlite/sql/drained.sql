-- A sentinel that is not newer than the newest recorded one changes nothing. If the time of a sentinel lies in the
-- future, the clock was set back after the sentinel was sent. Its real time is unknown, so it changes nothing either.
update queues
set drained_through = min(?2, ?3), drained_at = ?3
where name = ?1 and ?2 <= ?3 + 2000000 and (drained_through is null or drained_through < min(?2, ?3))
