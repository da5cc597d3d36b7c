-- ?1 is now, ?2 the interval, ?3 when one counts as lost.
(sentinel_sent_at is null
  or sentinel_sent_at <= ?1 - ?2 and (drained_through >= sentinel_sent_at or sentinel_sent_at <= ?1 - ?3))
