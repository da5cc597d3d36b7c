select id from runs where id = ?1 and state = 'live'
