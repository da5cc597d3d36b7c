-- +goose Up

-- Breakers are gates of the kind 'breaker'; see store.Breaker. Their concurrency is the highest number of probes at the
-- same time. probe_wait is in microseconds. passed and failed count the probes of the present step.
alter table gates add column probe_at integer;
alter table gates add column probe_wait integer;
alter table gates add column passed integer not null default 0;
alter table gates add column failed integer not null default 0;

-- Ordered tasks; see store.Order. ordered is null for all other tasks. Otherwise it is 1; 2 if the task is doomed; 3 if
-- its death has ended the turn of its key; 4 if its death dooms the tasks behind it.
alter table tasks add column ordered integer;

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

-- Topics; see store.Topics.
alter table tasks add column topic text;

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

-- +goose Down
update tasks set due_at = cast(unixepoch('subsec') * 1000000 as integer)
where due_at = 253370764800000000 and state = 'ready' and id in (select task_id from topic_tasks where phase < 2);
drop table topic_state;
drop table topic_weights;
drop table topic_arrivals;
drop table topic_turns;
drop table topic_tasks;
alter table tasks drop column topic;
update tasks set due_at = next_run_at where due_at = 253370764800000000 and state = 'ready' and id in (select task_id from key_waits);
drop table key_checks;
drop table key_waits;
drop table key_order;
alter table tasks drop column ordered;
update tasks set due_at = cast(unixepoch('subsec') * 1000000 as integer) -- these tasks need no permits any more
where due_at = 253370764800000000
  and id in (select task_id from blocked where gate_id in (select id from gates where kind = 'breaker'));
delete from blocked where gate_id in (select id from gates where kind = 'breaker');
delete from buckets where gate_id in (select id from gates where kind = 'breaker');
delete from gates where kind = 'breaker';
alter table gates drop column probe_at;
alter table gates drop column probe_wait;
alter table gates drop column passed;
alter table gates drop column failed;
