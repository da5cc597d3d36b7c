-- +goose Up

-- What the sentinels of a lane have proved: every ticket published before this time has left the lane's main queue. It
-- is true for good, so a look for lost tickets that takes several calls keeps to it.
alter table lanes add column proved_through timestamptz;

-- +goose Down
alter table lanes drop column proved_through;
