-- +goose Up

-- The idempotency key of a task that came from another store and keeps the one it had there. Null means that the key is
-- computed from the row, as for every task that was stored here. To change a payload, set this to null again: an edited
-- task is another request to whoever receives it.
alter table tasks add column idempotency_key text;

-- +goose Down
alter table tasks drop column idempotency_key;
