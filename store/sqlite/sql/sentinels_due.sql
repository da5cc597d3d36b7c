update queues set sentinel_sent_at = ?1,
  drained_through = iif({{queue_ahead}}, null, drained_through), drained_at = iif({{queue_ahead}}, null, drained_at),
  held_through = iif({{queue_ahead}}, null, held_through), held_at = iif({{queue_ahead}}, null, held_at),
  proved_through = iif({{queue_ahead}}, null, proved_through)
where {{sentinels_due_which}} returning name as queue, sentinel_sent_at as at
