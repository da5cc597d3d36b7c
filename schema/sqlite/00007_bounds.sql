-- +goose Up

-- This version changes a function of PostgreSQL. SQLite calls holdfast.TargetOf.
select 1;

-- +goose Down
select 1;
