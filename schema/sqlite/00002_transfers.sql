-- +goose Up

-- The mark on a file whose tasks are being carried to another store, or were: at most one row. While there is
-- one, triggers that come and go with it keep everybody from changing a task: see store/sqlite/exporter.go.
create table exports (
  one         integer primary key check (one = 1),
  transfer    text not null,
  origin      text not null, -- where the tasks are, for people
  target      text not null, -- where they go, for people
  destination text not null, -- the incarnation of the store there
  begun_at    integer not null,
  finished_at integer        -- when they were known to be there
) strict;

-- +goose Down
-- Fails while there is a mark: nobody could tell any more where the tasks are.
update exports set one = 0;
drop table exports;
