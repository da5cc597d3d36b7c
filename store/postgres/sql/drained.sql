-- A sentinel that an earlier one has overtaken, or that is reported twice, changes nothing. A sentinel from the future
-- was sent before the clock was set back, at an unknown time.
update holdfast.lanes
set drained_through = least($2::timestamptz, now()), drained_at = now()
where name = $1 and $2::timestamptz <= now() + interval '2 seconds'
  and (drained_through is null or drained_through < least($2::timestamptz, now()))
