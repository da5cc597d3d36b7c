update exports set finished_at = coalesce(finished_at, ?2) where transfer = ?1
