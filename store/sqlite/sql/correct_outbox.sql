-- No entry is meant to wait for a minute, and the real age of these entries is unknown. They get a creation time a
-- minute ago, so they are late: their tasks count as ticketed from the time when a janitor publishes them. ?1 is now.
update outbox set publish_after = iif(publish_after > ?1 + 60000000, ?1, publish_after), created_at = min(created_at, ?1 - 60000000)
where id > 0 and (publish_after > ?1 + 60000000 or created_at > ?1 + 2000000)
