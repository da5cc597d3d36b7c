-- +goose Up

-- The values that attempts leave besides their results; see store.Data. Each statement that deletes a task deletes its
-- data. A foreign key would lock the row of the task for each value.
create table task_data (
  task_id bigint not null,
  name    text not null collate "C",
  attempt integer not null,
  value   json not null,
  at      timestamptz not null,
  primary key (task_id, name)
);

-- +goose Down
drop table task_data;
