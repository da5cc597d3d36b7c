select exists (select from holdfast.outbox where publish_after <= now()) as ripe
