select exists (select from holdfast.outbox where publish_after <= now() and ($1::text = '' or queue = $1) and queue <> all($2::text[])) as ripe
