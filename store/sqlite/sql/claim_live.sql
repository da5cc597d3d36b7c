select id from workers where id = ?1 and state = 'live'
