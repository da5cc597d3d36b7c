-- +goose Up

-- What the sentinels of a lane have proved: every ticket published before this time has left the lane's main queue. It
-- is true for good.
alter table lanes add column proved_through integer;

-- +goose Down
alter table lanes drop column proved_through;
