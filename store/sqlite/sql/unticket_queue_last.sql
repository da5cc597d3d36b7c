select coalesce(max(ticketed_at), -1) as at from tasks where queue = ?1 and ticketed_at is not null
