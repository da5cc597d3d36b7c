-- +goose Up

-- How often a task was parked at one attempt: its waits grow with that number. A claim leaves both columns as they are, for
-- the attempt after it has another number. They are null in nearly all rows, where they take no room.
alter table tasks add column park_count integer, add column park_attempt integer;

-- +goose Down
alter table tasks drop column park_attempt, drop column park_count;
