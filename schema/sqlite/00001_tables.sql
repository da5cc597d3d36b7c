-- +goose Up

-- The application id says that the file is a Holdfast database: "Hold" in ASCII. The store refuses other files.
pragma application_id = 1215261796;

-- Times are microseconds since 1970, in UTC.

-- A task. These columns decide which partial indexes contain the task:
--
--   due_at       is set exactly while the task is ready and has neither a ticket nor an outbox entry. It is the time at
--                which to publish the ticket: next_run_at, or later if the broker refused the ticket.
--   ticketed_at  is set exactly while the task is ready and has a ticket or an outbox entry.
--   worker_id    is set exactly while the task is running.
--   finished_at  is set exactly while the task is neither ready nor running.
--   dead_at      is set exactly in the state dead.
--
-- So no query of a worker or a janitor reads all tasks. Each index costs a claim or a result about two microseconds.
create table tasks (
  id              integer primary key autoincrement, -- never reused
  type            text not null,
  queue           text not null,
  state           text not null default 'ready'
                  check (state in ('ready', 'running', 'done', 'dead', 'cancelled', 'archived')),
  attempt         integer not null default 1,
  max_attempts    integer not null,
  failures        integer not null default 0,
  crashes         integer not null default 0,
  deferrals       integer not null default 0,
  worker_id       integer check ((worker_id is not null) = (state = 'running')),
  next_run_at     integer not null,
  created_at      integer not null,
  started_at      integer,
  finished_at     integer check ((finished_at is not null) = (state not in ('ready', 'running'))),
  due_at          integer check (due_at is null or state = 'ready'),
  ticketed_at     integer check ((ticketed_at is not null) = (state = 'ready' and due_at is null)),
  dead_at         integer check ((dead_at is not null) = (state = 'dead')),
  requeued        integer not null default 0, -- its last attempt was broken off, so its ticket goes to the requeue queue
  unique_key      text,
  -- The idempotency key of a task that was imported and keeps the key it had. Null: the key is computed from the row. A
  -- change of the payload sets it to null again, because the receiver must take the edited task for another request.
  idempotency_key text,
  last_error      text,
  parked          text, -- why no worker runs it at present
  -- How often the task was parked at park_attempt. Each wait is longer than the one before. A claim leaves both columns
  -- as they are, because the next attempt has another number.
  park_count      integer,
  park_attempt    integer,
  -- Whether the worker claimed the task before an executor was free. Null means false. Only a claim writes it, and it has a
  -- meaning only while the task is running.
  buffered        integer,
  payload         text -- null if it is long: then it is in payloads
) strict;

create index tasks_due on tasks (due_at) where due_at is not null;
create index tasks_ticketed on tasks (queue, ticketed_at, next_run_at) where ticketed_at is not null;
create index tasks_worker on tasks (worker_id) where worker_id is not null;
create index tasks_finished on tasks (state, finished_at) where finished_at is not null;
create index tasks_dead on tasks (id, type, queue) where dead_at is not null;
create unique index tasks_unique on tasks (unique_key) where unique_key is not null;

-- Payloads too long to be copied at each change of their task.
create table payloads (
  task_id integer primary key references tasks on delete cascade,
  payload text not null
) strict;

-- An outbox entry lists the tasks of one call for one queue until the broker has confirmed their tickets.
create table outbox (
  id            integer primary key autoincrement,
  queue         text not null,
  task_ids      text not null, -- a JSON array
  created_at    integer not null,
  publish_after integer not null
) strict;

create index outbox_publish on outbox (publish_after);
create index outbox_queue on outbox (queue, created_at);

-- A worker is one registration of a process. Its presence and its process are not stored: one process serves a file, and
-- the operating system frees the lock on the file when that process ends.
create table workers (
  id          integer primary key autoincrement,
  name        text not null,
  host        text not null,
  pid         integer not null,
  version     text not null,
  concurrency integer not null,
  queues      text not null, -- a JSON array
  types       text, -- a JSON array of the task types that it has handlers for; null if its build did not report them
  state       text not null default 'live' check (state in ('live', 'dead', 'stopped')),
  draining    integer not null default 0,
  swept       integer not null default 0, -- it has ended, and a scan of all tasks found none of its tasks
  started_at  integer not null,
  renewed_at  integer not null,
  lease_until integer not null,
  ended_at    integer check ((ended_at is null) = (state = 'live')),
  taken       integer not null default 0, -- the last page that it has taken
  settled     integer not null default 0, -- every page up to this one is settled
  running     integer not null default 0  -- its handlers at the last renewal
) strict;

create index workers_live on workers (id) where state = 'live';
create index workers_unswept on workers (id) where state <> 'live' and not swept;

-- The recorded attempts: by default those that did not succeed, and the success after them.
create table attempts (
  task_id     integer not null references tasks on delete cascade,
  attempt     integer not null,
  event       text not null,
  worker_id   integer,
  worker_name text not null,
  started_at  integer,
  finished_at integer not null,
  class       text not null,
  error       text not null,
  stack       text,
  details     text,
  primary key (task_id, attempt, event)
) strict;

-- A running task was cancelled. The row is deleted when its worker has acknowledged the cancellation.
create table cancellations (
  id         integer primary key autoincrement,
  worker_id  integer not null,
  task_id    integer not null,
  attempt    integer not null,
  created_at integer not null
) strict;

create index cancellations_worker on cancellations (worker_id);

-- The queues that tasks were put in, and the progress of their sentinels.
create table queues (
  name             text primary key,
  created_at       integer not null,
  drained_through  integer, -- when the newest sentinel that left the main queue was sent
  drained_at       integer, -- when that sentinel left the main queue
  held_through     integer, -- the same for an older sentinel, which becomes a proof with a later one
  held_at          integer,
  -- What the sentinels have proved: every ticket published before this time has left the main queue.
  proved_through   integer,
  sentinel_sent_at integer -- of the newest sentinel, which is in the main queue while this is later than drained_through
) strict;

insert into queues (name, created_at) values ('default', unixepoch() * 1000000);

-- Duties that one process performs for all of them, once in each interval.
create table turns (
  duty     text primary key,
  taken_at integer not null
) strict;

create table meta (
  key   text primary key,
  value text not null
) strict;

insert into meta (key, value) values ('incarnation', lower(hex(randomblob(16))));

-- +goose Down
drop table meta;
drop table turns;
drop table queues;
drop table cancellations;
drop table attempts;
drop table workers;
drop table outbox;
drop table payloads;
drop table tasks;
