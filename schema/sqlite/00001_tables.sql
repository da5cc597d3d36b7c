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
  key             text, -- what the task is for, such as a tenant; see holdfast.NewTask
  tags            text, -- a JSON list; null if there are none
  topic           text, -- see store.Topics
  -- See store.Order. Null: the task is not ordered. Otherwise it is 1; 2 if the task is doomed; 3 if its death has ended the
  -- turn of its key; 4 if its death dooms the tasks behind it.
  ordered         integer,
  -- The plan that the task is a member of. There is no index: the items of the plan have the ids of its tasks.
  plan            integer,
  -- The context of the trace to which the task belongs, as in the W3C header traceparent, and after a space the header
  -- tracestate. Null: the task was stored without tracing.
  trace           text,
  payload         text -- null if it is long: then it is in payloads
) strict;

create index tasks_due on tasks (due_at) where due_at is not null;
create index tasks_ticketed on tasks (queue, ticketed_at, next_run_at) where ticketed_at is not null;
create index tasks_worker on tasks (worker_id) where worker_id is not null;
create index tasks_finished on tasks (state, finished_at) where finished_at is not null;
create index tasks_dead on tasks (id, type, queue) where dead_at is not null;
create unique index tasks_unique on tasks (unique_key) where unique_key is not null;

-- The unique keys that are taken until a time, also if their tasks are deleted before; see holdfast.NewTask.KeepsKey. The
-- transaction that inserts a task adds its row.
create table kept_keys (
  key        text primary key,
  task_id    integer not null, -- no foreign key, because the row outlives the task
  created_at integer not null, -- as in the task
  until      integer not null
) strict, without rowid;

create index kept_keys_until on kept_keys (until);
create index tasks_key on tasks (key, id) where key is not null;

-- Payloads too long to be copied at each change of their task.
create table payloads (
  task_id integer primary key references tasks on delete cascade,
  payload text not null
) strict;

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
  types       text, -- a JSON array of the task types that it has handlers for; null if it reported none
  state       text not null default 'live' check (state in ('live', 'dead', 'stopped')),
  draining    integer not null default 0,
  swept       integer not null default 0, -- it has ended, and a scan of all tasks found none of its tasks
  started_at  integer not null,
  renewed_at  integer not null,
  lease_until integer not null,
  ended_at    integer check ((ended_at is null) = (state = 'live')),
  taken       integer not null default 0, -- the last page that it has taken
  settled     integer not null default 0, -- every page up to this one is settled
  running     integer not null default 0, -- its handlers at the last renewal
  report      text, -- for people, from the last renewal: stuck tasks and its throughput. Null means nothing.
  settings    text  -- the settings of each task type that the worker uses, by type; see store.WorkerSettings
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

-- The values that attempts leave besides their results; see store.Effects.
create table task_data (
  task_id integer not null references tasks on delete cascade,
  name    text not null,
  attempt integer not null,
  value   text not null,
  at      integer not null,
  primary key (task_id, name)
) strict, without rowid;

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
  sentinel_sent_at integer, -- of the newest sentinel, which is in the main queue while this is later than drained_through
  late_at          integer  -- when a janitor announced that the oldest due task is too old. Null since the queue is well.
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

-- Each change of a setting increases the version. It is at least the time of the change in microseconds since 1970, so
-- that a restored copy of the file does not use a version again.
insert into meta (key, value) values ('settings_version', '0');

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
  resume  integer not null default 0  -- the block at which the next step continues
) strict;

insert into count_scan default values;

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
  lifted_at integer,
  -- Limits are gates of the kinds 'limit', 'limit per key' and 'limit per target'; see store.Limit. Null rates and
  -- concurrencies allow any.
  rate_count  integer,
  rate_per    integer, -- microseconds
  concurrency integer,
  -- Breakers are gates of the kind 'breaker'; see store.Breaker. Their concurrency is the highest number of probes at the
  -- same time. passed, failed and rejected count the probes of the present step.
  probe_at    integer,
  probe_wait  integer, -- microseconds
  passed      integer not null default 0,
  failed      integer not null default 0,
  rejected    integer not null default 0
) strict;

create unique index gates_subject on gates (kind, queue, type, key, target) where lifted_at is null;

-- A claim looks up the gates of a task by their subject; see {{closed_gates}} in store/sqlite/sql/parts.sql.
create index gates_lookup on gates (key, target, type, queue) where lifted_at is null;

-- The gates for which a claim computes the targets of tasks.
create index gates_targets on gates (id) where lifted_at is null and (target <> '' or kind = 'limit per target');

-- A janitor looks several times a second for gates whose time has passed, and for lifted ones. There may be 100,000
-- pauses of keys.
create index gates_until on gates (until) where lifted_at is null and until is not null;
create index gates_lifted on gates (id) where lifted_at is not null;
create index gates_breakers on gates (id) where lifted_at is null and kind = 'breaker';

-- The tasks that a gate blocks. Such a task is ready and has no ticket, and its due_at is the year 9999. A row is
-- outdated if its task is at another attempt.
create table blocked (
  task_id    integer primary key,
  attempt    integer not null,
  gate_id    integer not null,
  blocked_at integer not null,
  bucket     text not null default '' -- the bucket of a limit that blocks the task; see store.Scope.Bucket. '' for other gates
) strict;

create index blocked_gate on blocked (gate_id, task_id);
create index blocked_bucket on blocked (gate_id, bucket, blocked_at, task_id);

-- The permits of limits. A permit whose task is at another attempt, or no longer ready or running, is free; see
-- permits_free.
create table permits (
  task_id integer not null,
  gate_id integer not null,
  attempt integer not null,
  bucket  text not null,
  primary key (task_id, gate_id)
) strict, without rowid;

create index permits_bucket on permits (gate_id, bucket);

-- The buckets of limits that block tasks or remember a rate. next_at is the time of the next scan of the tasks that the
-- bucket blocks: the year 9999 if a permit must become free before. See permit.Bucket about the other columns.
create table buckets (
  gate_id    integer not null,
  bucket     text not null,
  next_at    integer not null,
  allowed_at integer,
  behind     integer not null default 0,
  -- The blocked task for which the bucket keeps a permit, its blocked_at, and when it first left the bucket; see
  -- permit.Reservation. Null means none. The reservation has ended if the task is no longer blocked since then.
  reserved_task  integer,
  reserved_since integer,
  reserved_from  integer,
  primary key (gate_id, bucket)
) strict, without rowid;

create index buckets_next on buckets (next_at);

-- The keys with open ordered tasks.
create table key_order (
  key    text primary key,
  active integer, -- the only ordered task of the key that may start; null: none
  dead   integer not null default 0 -- 1 if active is dead and holds the key, 2 if it also dooms the tasks behind it
) strict, without rowid;

create index key_order_dead on key_order (key) where dead > 0;

-- The ordered tasks that wait: they are ready, have no ticket, and their due_at is the year 9999.
create table key_waits (
  key     text not null,
  task_id integer not null,
  primary key (key, task_id)
) strict, without rowid;

-- Keys whose active task may have ended. A janitor checks them.
create table key_checks (
  id  integer primary key,
  key text not null
) strict;

-- The open tasks with a topic. phase is 0 if the task waits for a slot and has never started, 1 if it waits for another
-- start, and 2 if it has a slot. It is 3 or 4 if the task is not due, or if something else blocks it; 3 if it has never
-- started. A row is deleted or corrected some time after its task has changed, when a janitor reads it.
create table topic_tasks (
  task_id integer primary key,
  queue   text not null, -- the subqueue
  topic   text not null,
  phase   integer not null
) strict;

create index topic_tasks_phase on topic_tasks (queue, topic, phase, task_id);
create index topic_tasks_slots on topic_tasks (task_id) where phase = 2;

-- The topics in which tasks wait for slots. The topic with the lowest turn gets the next slot; see package slots.
create table topic_turns (
  queue text not null, -- the subqueue
  topic text not null,
  turn  real not null,
  primary key (queue, topic)
) strict, without rowid;

create index topic_turns_turn on topic_turns (queue, turn, topic);

-- Topics in which tasks have begun to wait.
create table topic_arrivals (
  id    integer primary key,
  queue text not null,
  topic text not null
) strict;

create table topic_weights (
  topic  text primary key,
  weight integer not null
) strict, without rowid;

-- The process that gives slots. The table has one row.
create table topic_state (
  owner     text not null,
  looked_at integer not null
) strict;

insert into topic_state values ('', 0);

-- Plans store tasks at times that they determine; see store.Plans. Each step increases the version, and most change
-- next_at, the time of the next step. It is null if no time makes a step possible. spec has what was asked for, and
-- progress how far the plan is.
--
-- A batch is a plan whose tasks end together. It is stopped if nothing happens before people have repaired dead tasks.
-- first_task and last_task are the lowest and the highest id of its tasks, or null; a list reads only these ids.
--
-- failures is how many steps have failed in a row, and failure the error of the last one. next_at then is the time of the
-- next try. A step that succeeds, or a change by a person, resets both.
create table plans (
  id         integer primary key autoincrement,
  kind       text not null,
  name       text not null,
  state      text not null check (state in ('running', 'paused', 'stopped', 'done', 'cancelled', 'deleted')),
  version    integer not null default 1,
  next_at    integer,
  spec       text not null,
  progress   text not null default '{}',
  actor      text not null,
  surface    text not null,
  reason     text not null default '',
  created_at integer not null,
  ended_at   integer,
  first_task integer,
  last_task  integer,
  failures   integer not null default 0,
  failure    text
) strict;

create unique index plans_name on plans (kind, name) where ended_at is null;
create index plans_next on plans (next_at) where next_at is not null;
create index plans_ended on plans (ended_at) where ended_at is not null;

-- The parts of plans that need a row of their own, such as open slices; see store.PlanItem. next_at is null if no time
-- needs a look at the item. All tasks of a closed item have ended.
create table plan_items (
  plan_id integer not null references plans on delete cascade,
  item    text not null,
  state   text not null check (state in ('open', 'closed', 'dead')),
  next_at integer,
  data    text not null,
  primary key (plan_id, item)
) strict, without rowid;

create index plan_items_next on plan_items (plan_id, state, next_at);

-- The task settings that people change while processes run. A process ignores keys and values that it does not know.
create table settings (
  key   text primary key,
  value text not null
) strict, without rowid;

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

-- Why tasks died. The table has a row for each dead task. The statement that changes the state of a task inserts or
-- deletes the row; for a restored task, a janitor inserts it later. All columns can be computed from the task and its last
-- attempt.
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

-- The groups of dead tasks that a person has changed, or that were announced. The columns from type to last_at repeat what
-- was last seen of the group, because its dead tasks may be gone.
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
create index audit_single on audit (id) where operation_id is null or task_id is null;

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

-- The newest result of each part of the check for tasks that break an invariant. All processes share it: one janitor at a
-- time checks, and every process shows the result.
create table verify_results (
  part       text primary key,
  findings   text not null default '[]', -- for each kind of fault its code, the number of tasks, and some of their ids
  resume     integer not null default 0, -- the id after which the next check of the part continues
  checked_at integer -- null until the part was checked completely
) strict;

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

-- Figures for charts: one row per queue, figure and minute. queue is '' for the sum of all queues. Rows are deleted
-- after 25 hours. Only a chart reads them.
create table figures (
  queue  text not null,
  figure text not null,
  minute integer not null,
  n      integer not null,
  primary key (queue, figure, minute)
) strict, without rowid;

-- +goose Down
drop table figures;
drop table failing_duties;
drop table verify_results;
drop table answers;
drop table tokens;
drop table audit;
drop table dead_groups;
drop table deaths;
drop table operation_tasks;
drop table operations;
drop table type_schemas;
drop table settings;
drop table plan_items;
drop table plans;
drop table topic_state;
drop table topic_weights;
drop table topic_arrivals;
drop table topic_turns;
drop table topic_tasks;
drop table key_checks;
drop table key_waits;
drop table key_order;
drop table buckets;
drop table permits;
drop table blocked;
drop table gates;
drop table count_scan;
drop table counts;
drop table meta;
drop table turns;
drop table queues;
drop table cancellations;
drop table task_data;
drop table attempts;
drop table workers;
drop table outbox;
drop table tags;
drop table payloads;
drop table kept_keys;
drop table tasks;
