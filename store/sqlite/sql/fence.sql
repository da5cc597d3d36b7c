update workers set state = 'dead', ended_at = ?1 where state = 'live' and lease_until < ?1 - ?2 returning id
