-- No entry has to wait for a minute. The real age of these entries is unknown. They count as late, so that their tasks
-- count as ticketed when a janitor publishes them.
update holdfast.outbox set
  publish_after = case when publish_after > now() + interval '1 minute' then now() else publish_after end,
  created_at = least(created_at, now() - interval '1 minute')
where publish_after > now() + interval '1 minute' or created_at > now() + interval '2 seconds'
