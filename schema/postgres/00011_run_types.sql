-- +goose Up

-- The task types that the worker has handlers for. Null if the build of the worker did not say.
alter table runs add column types text[];

-- +goose Down
alter table runs drop column types;
