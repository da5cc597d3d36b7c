-- If the newest renewal of a run lies in the future, the clock was set back since. The run gets a whole lease from now.
update runs set renewed_at = ?1, lease_until = ?1 + (lease_until - renewed_at) where state = 'live' and renewed_at > ?1 + 2000000
