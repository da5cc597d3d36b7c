-- +goose Up

-- The duties of janitors that fail, for people. A janitor writes a row when a duty has failed for a while, and deletes
-- the row when the duty works again. A row is valid until valid_until, because the janitor may have ended.
create table failing_duties (
  janitor     text not null,
  duty        text not null,
  error       text not null,
  since       integer not null,
  valid_until integer not null,
  primary key (janitor, duty)
) without rowid;

-- The settings of each task type that the worker uses, by type; null if its build does not report them. See
-- store.WorkerSettings.
alter table workers add column settings text;

-- +goose Down
alter table workers drop column settings;
drop table failing_duties;
