-- No entry waits for a minute. Its real age is not known. It counts as late, so that its tasks count as ticketed when it is published.
update holdfast.outbox set
  publish_after = case when publish_after > now() + interval '1 minute' then now() else publish_after end,
  created_at = least(created_at, now() - interval '1 minute')
where publish_after > now() + interval '1 minute' or created_at > now() + interval '2 seconds'
