-- +goose Up

-- How many steps of the plan have failed in a row, and the error of the last one. next_at then is the time of the next
-- try. A step that succeeds, or a change by a person, resets both.
alter table plans add column failures integer not null default 0;
alter table plans add column failure text;

-- +goose Down
alter table plans drop column failure;
alter table plans drop column failures;
