-- +goose Up

-- Tables for the people who operate the system.

-- Why tasks died. The table has a row for each dead task. The statement that changes the state of a task inserts or
-- deletes the row; for a restored task and a task that died before this migration, a janitor inserts it later. All
-- columns can be computed from the task and its last attempt. They are here because no index on tasks may contain
-- what a claim or a success writes.
create table deaths (
  task_id     bigint primary key,
  died_at     timestamptz not null,
  type        text not null,
  queue       text not null,
  fingerprint text not null, -- identifies the cause; the dead tasks with the same fingerprint are a group
  class       text not null,
  host        text not null default '', -- of the target of a delivery
  status      integer not null default 0 -- of the response to a delivery
) with (autovacuum_vacuum_scale_factor = 0.05);

create index deaths_group on deaths (fingerprint, task_id);

-- +goose Down
drop table deaths;
