-- A sentinel that is not newer than the newest recorded one changes nothing. If the time of a sentinel lies in the
-- future, the clock was set back after the sentinel was sent. Its real time is unknown, so it changes nothing either.
update holdfast.queues
set drained_through = least($2::timestamptz, now()), drained_at = now()
where name = $1 and $2::timestamptz <= now() + interval '2 seconds'
  and (drained_through is null or drained_through < least($2::timestamptz, now()))
