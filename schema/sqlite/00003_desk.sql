-- +goose Up

-- Tables for the people who operate the system.

-- Why tasks died. The table has a row for each dead task. The statement that changes the state of a task inserts or
-- deletes the row; for a restored task and a task that died before this migration, a janitor inserts it later. All
-- columns can be computed from the task and its last attempt.
create table deaths (
  task_id     integer primary key references tasks on delete cascade,
  died_at     integer not null,
  type        text not null,
  queue       text not null,
  fingerprint text not null, -- identifies the cause; the dead tasks with the same fingerprint are a group
  class       text not null,
  host        text not null default '', -- of the target of a delivery
  status      integer not null default 0 -- of the response to a delivery
) strict;

create index deaths_group on deaths (fingerprint, task_id);

-- +goose Down
drop table deaths;
