-- +goose Up

-- Tables for the people who operate the system.

-- What the worker reported with its latest renewal, for people: stuck tasks and its throughput. Null means nothing.
alter table workers add column report text;

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
create index deaths_time on deaths (fingerprint, died_at);

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
create index audit_operation on audit (operation_id, id) where operation_id is not null;
create index audit_subject on audit (subject, id) where subject <> '';

-- The groups of dead tasks that a person has changed, or that were announced. The columns from type to last_at repeat what was last seen of the
-- group, because its dead tasks may be gone.
create table dead_groups (
  fingerprint text primary key,
  type        text not null,
  class       text not null,
  host        text not null,
  status      integer not null,
  sample      integer not null,
  error       text not null,
  first_at    integer not null,
  last_at     integer not null,
  version     integer not null default 1, -- each change by a person increases it
  note        text not null default '',
  owner       text not null default '',
  announced   integer not null default 0, -- since it was last resolved
  resolved_at integer -- the group returns when a task with its fingerprint dies later
) strict;

-- The tokens with which programs use the HTTP API. The secret of a token is not stored.
create table tokens (
  id         integer primary key autoincrement,
  name       text not null,
  role       text not null, -- viewer, operator or admin
  hash       text not null unique, -- SHA-256 of the secret, in hexadecimal digits
  created_at integer not null,
  used_at    integer, -- exact to a minute
  expires_at integer, -- null: never
  revoked_at integer
) strict;

create unique index tokens_name on tokens (name) where revoked_at is null;

-- The answers to requests with an idempotency key. The transaction that carries out a request stores its answer.
create table answers (
  scope      text not null, -- who sent the request
  key        text not null,
  hash       text not null, -- of the request
  status     integer, -- null only inside of that transaction, like the next one
  body       text,
  created_at integer not null,
  primary key (scope, key)
) strict;

create index answers_created on answers (created_at);

-- What a task is for, such as a tenant; see holdfast.NewTask. No claim and no success writes it.
alter table tasks add column key text;

create index tasks_key on tasks (key, id) where key is not null;

-- The tags of a task, a JSON list, or null if it has none.
alter table tasks add column tags text;

-- The tasks with a tag, for the list of tasks with a tag. Each statement that inserts a task with tags or changes its tags
-- changes its rows. A trigger deletes them with the task.
create table tags (
  tag     text not null,
  task_id integer not null, -- no foreign key: each deletion of a task would have to find its rows without an index
  primary key (tag, task_id)
) strict, without rowid;

-- +goose StatementBegin
create trigger tasks_tags after delete on tasks when old.tags is not null begin
  delete from tags where task_id = old.id and tag in (select value from json_each(old.tags));
end;
-- +goose StatementEnd

-- The newest result of each part of the check for tasks that break an invariant. All processes share it: one janitor at a
-- time checks, and every process shows the result.
create table verify_results (
  part       text primary key,
  findings   text not null default '[]', -- for each kind of fault its code, the number of tasks, and some of their ids
  resume     integer not null default 0, -- the id after which the next check of the part continues
  checked_at integer -- null until the part was checked completely
) strict;

-- How many tasks there are, by queue, type, state and block of 100,000 ids. Each transaction that inserts, ends, revives
-- or deletes tasks changes the numbers. A claim does not.
--
-- state is a final state, or 'all' for the tasks in any state. The tasks in no final state are the rest. The block lets
-- a janitor compare the numbers with the tasks in small steps.
create table counts (
  queue text not null,
  type  text not null,
  state text not null,
  block integer not null,
  n     integer not null,
  primary key (block, queue, type, state)
) strict, without rowid;

-- A deletion, and a change of the queue, are rare. So triggers count them. No claim and no success changes the queue.
-- +goose StatementBegin
create trigger tasks_deleted after delete on tasks begin
  insert into counts (queue, type, state, block, n)
  select old.queue, old.type, 'all', old.id / 100000, -1 where true
  union all
  select old.queue, old.type, old.state, old.id / 100000, -1 where old.state not in ('ready', 'running')
  on conflict (block, queue, type, state) do update set n = n + excluded.n;
end;
-- +goose StatementEnd

-- +goose StatementBegin
create trigger tasks_queue after update of queue on tasks when old.queue <> new.queue begin
  insert into counts (queue, type, state, block, n)
  select old.queue, old.type, 'all', old.id / 100000, -1 where true
  union all
  select new.queue, old.type, 'all', old.id / 100000, 1 where true
  union all
  select old.queue, old.type, old.state, old.id / 100000, -1 where old.state not in ('ready', 'running')
  union all
  select new.queue, old.type, old.state, old.id / 100000, 1 where old.state not in ('ready', 'running')
  on conflict (block, queue, type, state) do update set n = n + excluded.n;
end;
-- +goose StatementEnd

-- The progress of the comparison. The table has one row.
create table count_scan (
  one_row integer primary key default 1 check (one_row = 1),
  step    integer not null default 0, -- the number of steps; of two simultaneous steps, the second one does nothing
  resume  integer not null default 0, -- the block at which the next step continues
  filled  integer not null            -- whether all blocks were compared since the migration
) strict;

insert into count_scan (filled) select not exists (select 1 from tasks);

-- The JSON Schemas of the payloads of task types. A worker stores those of its types when it registers, and the newest
-- worker wins.
create table type_schemas (
  type       text primary key,
  schema     text, -- JSON; null if the handler accepts any payload
  worker_id  integer not null, -- the worker that stored it; no foreign key, because ended workers are deleted
  updated_at integer not null -- when it last changed
) strict, without rowid;

-- Long work on many tasks; see store.Operation. A step of an operation increments its version in the transaction that
-- changes the tasks.
create table operations (
  id             integer primary key autoincrement,
  version        integer not null default 1,
  state          text not null check (state in ('planned', 'running', 'paused', 'stopped', 'done', 'cancelled')),
  action         text not null,
  query          text not null, -- as a person wrote it
  filter         text not null, -- what the query meant when the operation was created
  patch          text,
  unvalidated    integer not null default 0, -- the payloads of an edit need not fit the schemas of their types
  actor          text not null,
  surface        text not null,
  reason         text not null default '',
  note           text not null default '',
  rate           integer not null default 0,
  ramp           text not null default '[]',
  stop_above     real not null default 1,
  step_timeout   integer not null default 0, -- microseconds
  max_tasks      integer not null default 0, -- 0: no limit
  total          integer not null default 0,
  changed        integer not null default 0,
  skipped        integer not null default 0,
  refused        integer not null default 0,
  succeeded      integer not null default 0,
  failed         integer not null default 0,
  judged         integer not null default 0,
  step           integer not null default 0,
  step_succeeded integer not null default 0,
  step_failed    integer not null default 0,
  cursor         integer not null default 0,
  accepted       integer not null default 0,
  scanned        integer not null default 0,
  created_at     integer not null,
  started_at     integer,
  finished_at    integer,
  advanced_at    integer,
  waiting_at     integer,
  unannounced_at integer -- when the operation stopped by itself, until a janitor announces that
) strict;

create index operations_running on operations (id) where state = 'running';
create index operations_unannounced on operations (id) where unannounced_at is not null;

-- The tasks that operations have retried and whose first new attempt has not been judged.
create table operation_tasks (
  operation_id integer not null,
  task_id      integer not null,
  primary key (operation_id, task_id)
) strict, without rowid;

-- When a janitor announced that the oldest due task of the queue is too old. Null since the queue is well.
alter table queues add column late_at integer;

-- +goose Down
alter table queues drop column late_at;
drop table type_schemas;
drop table answers;
drop table tokens;
drop trigger tasks_queue;
drop trigger tasks_deleted;
drop table count_scan;
drop table counts;


drop table operation_tasks;
drop table operations;
drop trigger tasks_tags;
drop table tags;
alter table tasks drop column tags;
drop index tasks_key;
alter table tasks drop column key;
drop table dead_groups;
drop table audit;
drop table verify_results;
drop table deaths;
alter table workers drop column report;
