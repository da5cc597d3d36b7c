select state from runs where id = ?1
