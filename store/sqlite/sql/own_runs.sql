update runs set state = 'dead', ended_at = ?1 where state = 'live'
