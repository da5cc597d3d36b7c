delete from cancellations where run_id = ?1
