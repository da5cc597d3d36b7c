-- +goose Up

-- The values that attempts leave besides their results; see store.Data.
create table task_data (
  task_id integer not null references tasks on delete cascade,
  name    text not null,
  attempt integer not null,
  value   text not null,
  at      integer not null,
  primary key (task_id, name)
) strict, without rowid;

-- +goose Down
drop table task_data;
