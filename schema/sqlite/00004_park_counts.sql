-- +goose Up

-- How often a task was parked at one attempt: its waits grow with that number. A claim leaves both columns as they are, for
-- the attempt after it has another number.
alter table tasks add column park_count integer;
alter table tasks add column park_attempt integer;

-- +goose Down
alter table tasks drop column park_attempt;
alter table tasks drop column park_count;
