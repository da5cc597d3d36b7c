-- +goose Up

-- Whose file this is: "Hold" in ASCII. Another program's database is refused by it.
pragma application_id = 1215261796;

-- Times are microseconds since 1970, in UTC.

-- A task. What sets tasks apart is which of these columns are set, and each of them has a partial index:
--
--   due_at       exactly while the row is ready and has neither a ticket nor a receipt. It is when to
--                publish the ticket, which is later than next_run_at if the queue refused it.
--   ticketed_at  exactly while the row is ready and has one of the two.
--   run_id       exactly while the row is running.
--   finished_at  exactly while nobody will touch the row unless asked to.
--   dead_at      exactly in state dead, for the list of dead letters.
--
-- So no question of a worker or a janitor reads all tasks. Each index costs a claim or a result about two
-- microseconds; there is no other version of a row that it would have to point to.
create table tasks (
  id           integer primary key autoincrement, -- never used again
  type         text not null,
  lane         text not null,
  state        text not null default 'ready'
               check (state in ('ready', 'running', 'done', 'dead', 'cancelled', 'archived')),
  attempt      integer not null default 1,
  max_attempts integer not null,
  failures     integer not null default 0,
  crashes      integer not null default 0,
  deferrals    integer not null default 0,
  run_id       integer check ((run_id is not null) = (state = 'running')),
  next_run_at  integer not null,
  created_at   integer not null,
  started_at   integer,
  finished_at  integer check ((finished_at is not null) = (state not in ('ready', 'running'))),
  due_at       integer check (due_at is null or state = 'ready'),
  ticketed_at  integer check ((ticketed_at is not null) = (state = 'ready' and due_at is null)),
  dead_at      integer check ((dead_at is not null) = (state = 'dead')),
  again        integer not null default 0, -- its last attempt was broken off: its ticket goes before the backlog
  unique_key   text,
  last_error   text,
  parked       text,
  payload      text -- null if it is long: then it is in payloads
) strict;

create index tasks_due on tasks (due_at) where due_at is not null;
create index tasks_ticketed on tasks (lane, ticketed_at, next_run_at) where ticketed_at is not null;
create index tasks_run on tasks (run_id) where run_id is not null;
create index tasks_finished on tasks (state, finished_at) where finished_at is not null;
create index tasks_dead on tasks (id) where dead_at is not null;
create unique index tasks_unique on tasks (unique_key) where unique_key is not null;

-- Payloads too long to be written anew with every move of their task.
create table payloads (
  task_id integer primary key references tasks on delete cascade,
  payload text not null
) strict;

-- One receipt per lane of a stored batch, until the tickets of its tasks are confirmed.
create table outbox (
  id            integer primary key autoincrement,
  lane          text not null,
  task_ids      text not null, -- a JSON array
  created_at    integer not null,
  publish_after integer not null
) strict;

create index outbox_publish on outbox (publish_after);
create index outbox_lane on outbox (lane, created_at);

-- One life of one worker.
create table runs (
  id          integer primary key autoincrement,
  name        text not null,
  host        text not null,
  pid         integer not null,
  version     text not null,
  concurrency integer not null,
  lanes       text not null, -- a JSON array
  state       text not null default 'live' check (state in ('live', 'dead', 'stopped')),
  draining    integer not null default 0,
  swept       integer not null default 0, -- it is over and a look at all tasks found none of its own
  started_at  integer not null,
  renewed_at  integer not null,
  lease_until integer not null,
  ended_at    integer check ((ended_at is null) = (state = 'live')),
  taken       integer not null default 0,
  settled     integer not null default 0,
  running     integer not null default 0
) strict;

create index runs_live on runs (id) where state = 'live';
create index runs_unswept on runs (id) where state <> 'live' and not swept;

-- The attempts that did not end in success.
create table attempts (
  task_id     integer not null references tasks on delete cascade,
  attempt     integer not null,
  event       text not null,
  run_id      integer,
  worker      text not null,
  started_at  integer,
  finished_at integer not null,
  class       text not null,
  error       text not null,
  stack       text,
  details     text,
  primary key (task_id, attempt, event)
) strict;

-- Word for a run that a task it runs was cancelled, until the run has heard it.
create table cancellations (
  id         integer primary key autoincrement,
  run_id     integer not null,
  task_id    integer not null,
  attempt    integer not null,
  created_at integer not null
) strict;

create index cancellations_run on cancellations (run_id);

create table lanes (
  name             text primary key,
  created_at       integer not null,
  drained_through  integer, -- when the newest sentinel that came out of the lane's main queue had been sent
  drained_at       integer, -- when it came out
  held_through     integer, -- the same of an older one, kept until another one makes it a proof
  held_at          integer,
  sentinel_sent_at integer  -- of the newest sentinel; it is on its way while this is later than drained_through
) strict;

insert into lanes (name, created_at) values ('default', unixepoch() * 1000000);

-- Duties that one process in an interval is enough for.
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
drop table lanes;
drop table cancellations;
drop table attempts;
drop table runs;
drop table outbox;
drop table payloads;
drop table tasks;
