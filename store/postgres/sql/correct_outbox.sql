-- No entry is meant to wait for a minute, and the real age of these entries is unknown. They get a creation time a
-- minute ago, so they are late: their tasks count as ticketed from the time when a janitor publishes them.
update holdfast.outbox set
  publish_after = case when publish_after > now() + interval '1 minute' then now() else publish_after end,
  created_at = least(created_at, now() - interval '1 minute')
where publish_after > now() + interval '1 minute' or created_at > now() + interval '2 seconds'
