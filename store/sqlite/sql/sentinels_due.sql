update lanes set sentinel_sent_at = ?1 where {{sentinels_due_which}} returning name as lane, sentinel_sent_at as at
