-- +goose Up
-- A file has no table bucket_arrivals: one transaction writes at a time, so a worker that blocks tasks writes the buckets
-- itself.
select 1;

-- +goose Down
select 1;
