-- +goose Up
-- The migration of PostgreSQL changes a function, which a file does not have.
select 1;

-- +goose Down
select 1;
