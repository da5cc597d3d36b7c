update workers set state = 'stopped', ended_at = ?2, running = 0, swept = ?3 where id = ?1 and state = 'live';

delete from cancellations where worker_id = ?1
