-- No entry has to wait for a minute. The real age of these entries is unknown. They count as late, so that their tasks
-- count as ticketed when a janitor publishes them.
update outbox set publish_after = iif(publish_after > ?1 + 60000000, ?1, publish_after), created_at = min(created_at, ?1 - 60000000)
where id > 0 and (publish_after > ?1 + 60000000 or created_at > ?1 + 2000000)
