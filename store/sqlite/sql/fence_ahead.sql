-- If the newest renewal of a worker lies in the future, the clock was set back since. Such a worker gets a whole lease
-- from now, in which a live process renews it.
update workers set renewed_at = ?1, lease_until = ?1 + (lease_until - renewed_at) where state = 'live' and renewed_at > ?1 + 2000000
