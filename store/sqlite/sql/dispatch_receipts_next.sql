select publish_after as at from outbox order by publish_after limit 1
