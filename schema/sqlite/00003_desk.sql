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

-- The audit log: the changes that people requested. The transaction that makes a change adds its entry.
create table audit (
  id           integer primary key autoincrement,
  at           integer not null,
  actor        text not null, -- who requested the change
  surface      text not null, -- where
  reason       text not null default '',
  action       text not null,
  task_id      integer, -- no foreign key: the entries of a purged task remain
  operation_id integer, -- the operation that made the change
  subject      text not null default '', -- what was changed, if it is not a task
  before       text, -- JSON: the members that the change replaced
  after        text
) strict;

create index audit_task on audit (task_id, id) where task_id is not null;

-- +goose Down
drop table audit;
drop table deaths;
