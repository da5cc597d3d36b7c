-- ?1 is now, ?2 the interval, ?3 when one counts as lost. If a time lies in the future, the clock was set back since.
(sentinel_sent_at is null
  or sentinel_sent_at <= ?1 - ?2 and (drained_through >= sentinel_sent_at or sentinel_sent_at <= ?1 - ?3)
  or max(coalesce(sentinel_sent_at, 0), coalesce(drained_through, 0), coalesce(drained_at, 0), coalesce(held_through, 0), coalesce(held_at, 0),
    coalesce(proved_through, 0))
    > ?1 + 2000000)
