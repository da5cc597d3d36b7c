update workers
set renewed_at = ?2, lease_until = ?2 + ?3, taken = max(taken, ?4), settled = max(settled, ?5), running = ?6
where id = ?1 and state = 'live' and (?7 = '' or name = ?7 and host = ?8 and pid = ?9)
returning draining
