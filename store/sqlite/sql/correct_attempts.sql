update attempts set started_at = iif(started_at > ?1, ?1, started_at), finished_at = ?1
where task_id > ?2 and task_id <= ?3 and finished_at > ?1 + 2000000
