select exists (select from holdfast.outbox where publish_after <= now() and ($1::text = '' or lane = $1) and lane <> all($2::text[])) as ripe
