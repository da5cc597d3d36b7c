-- +goose Up

-- What keeps ready tasks from starting; see store.Gate. A gate concerns the tasks that match each of queue, type, key
-- and target that is not empty. It is closed until lifted_at or until. Its row remains until its blocked tasks are
-- released.
create table gates (
  id        integer primary key autoincrement,
  kind      text not null,
  queue     text not null default '',
  type      text not null default '',
  key       text not null default '',
  target    text not null default '',
  actor     text not null,
  surface   text not null,
  reason    text not null default '',
  closed_at integer not null,
  until     integer, -- null: until a person resumes
  lifted_at integer
) strict;

create unique index gates_subject on gates (kind, queue, type, key, target) where lifted_at is null;

-- The tasks that a gate blocks. Such a task is ready and has no ticket, and its due_at is the year 9999. A row is
-- outdated if its task is at another attempt.
create table blocked (
  task_id    integer primary key,
  attempt    integer not null,
  gate_id    integer not null,
  blocked_at integer not null
) strict;

create index blocked_gate on blocked (gate_id, task_id);

-- Whether the build of the worker obeys gates. Null: a build without gates registered the worker.
alter table workers add column gates integer;

-- The task settings that people change while processes run. A process ignores keys and values that it does not know.
create table settings (
  key   text primary key,
  value text not null
) strict, without rowid;

-- Each change of a setting increases the version. It is at least the time of the change in microseconds since 1970, so
-- that a restored copy of the file does not use a version again.
insert into meta (key, value) values ('settings_version', '0');

-- +goose Down
update tasks set due_at = max(next_run_at, cast(unixepoch('subsec') * 1000000 as integer)) -- no gate will release these tasks
where due_at = 253370764800000000 and state = 'ready' and next_run_at < due_at;
delete from meta where key = 'settings_version';
drop table settings;
alter table workers drop column gates;
drop table blocked;
drop table gates;
