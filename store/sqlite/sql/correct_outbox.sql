-- No entry waits for a minute. Its real age is not known. It counts as late, so that its tasks count as ticketed when it is published.
update outbox set publish_after = iif(publish_after > ?1 + 60000000, ?1, publish_after), created_at = min(created_at, ?1 - 60000000)
where id > 0 and (publish_after > ?1 + 60000000 or created_at > ?1 + 2000000)
