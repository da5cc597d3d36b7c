update workers set draining = 1 where id = ?1 and state = 'live'
