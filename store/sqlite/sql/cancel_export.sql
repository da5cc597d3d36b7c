delete from exports where transfer = ?1
