-- Whether a time of the lane's sentinels lies after ?1.
max(coalesce(drained_through, 0), coalesce(drained_at, 0), coalesce(held_through, 0), coalesce(held_at, 0), coalesce(proved_through, 0))
  > ?1 + 2000000
