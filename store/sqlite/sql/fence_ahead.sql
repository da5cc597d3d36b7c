-- A run whose newest renewal lies in the future is from a clock that was set back since. It gets a whole lease from now.
update runs set renewed_at = ?1, lease_until = ?1 + (lease_until - renewed_at) where state = 'live' and renewed_at > ?1 + 2000000
