-- +goose Up

-- The plan that the task is a member of. It is null in nearly all rows, and never changes. There is no index: the items
-- of the plan have the ids of its tasks.
alter table tasks add column plan integer;

-- SQLite cannot change a check, so the tables are made again. The copies of the items refer to the copies of the plans,
-- because the drop of a table deletes the rows that refer to it. No id of a plan is used twice, so the copy also gets the
-- highest id that was ever assigned.
--
-- A batch is a plan whose tasks end together. It is stopped if nothing happens before people have repaired dead tasks.
-- first_task and last_task are the lowest and the highest id of its tasks, or null; a list reads only these ids.
create table new_plans (
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
  last_task  integer
) strict;

-- All tasks of a closed item have ended.
create table new_plan_items (
  plan_id integer not null references new_plans on delete cascade,
  item    text not null,
  state   text not null check (state in ('open', 'closed', 'dead')),
  next_at integer,
  data    text not null,
  primary key (plan_id, item)
) strict, without rowid;

insert into new_plans (id, kind, name, state, version, next_at, spec, progress, actor, surface, reason, created_at, ended_at)
select id, kind, name, state, version, next_at, spec, progress, actor, surface, reason, created_at, ended_at
from plans;
delete from sqlite_sequence where name = 'new_plans';
insert into sqlite_sequence (name, seq) select 'new_plans', seq from sqlite_sequence where name = 'plans';
insert into new_plan_items select plan_id, item, state, next_at, data from plan_items;

drop table plan_items;
drop table plans;
alter table new_plans rename to plans;
alter table new_plan_items rename to plan_items;
create unique index plans_name on plans (kind, name) where ended_at is null;
create index plans_next on plans (next_at) where next_at is not null;
create index plans_ended on plans (ended_at) where ended_at is not null;
create index plan_items_next on plan_items (plan_id, state, next_at);

-- +goose Down
-- Older builds do not know the tasks of a batch, so they could not continue it.
create table old_plans (
  id         integer primary key autoincrement,
  kind       text not null,
  name       text not null,
  state      text not null check (state in ('running', 'paused', 'done', 'deleted')),
  version    integer not null default 1,
  next_at    integer,
  spec       text not null,
  progress   text not null default '{}',
  actor      text not null,
  surface    text not null,
  reason     text not null default '',
  created_at integer not null,
  ended_at   integer
) strict;

create table old_plan_items (
  plan_id integer not null references old_plans on delete cascade,
  item    text not null,
  state   text not null check (state in ('open', 'dead')),
  next_at integer,
  data    text not null,
  primary key (plan_id, item)
) strict, without rowid;

insert into old_plans (id, kind, name, state, version, next_at, spec, progress, actor, surface, reason, created_at, ended_at)
select id, kind, name, case state when 'stopped' then 'paused' when 'cancelled' then 'deleted' else state end, version, next_at, spec,
  progress, actor, surface, reason, created_at, ended_at
from plans where kind <> 'batch';
delete from sqlite_sequence where name = 'old_plans';
insert into sqlite_sequence (name, seq) select 'old_plans', seq from sqlite_sequence where name = 'plans';
insert into old_plan_items select plan_id, item, state, next_at, data from plan_items
where state <> 'closed' and plan_id in (select id from old_plans);

drop table plan_items;
drop table plans;
alter table old_plans rename to plans;
alter table old_plan_items rename to plan_items;
create unique index plans_name on plans (kind, name) where ended_at is null;
create index plans_next on plans (next_at) where next_at is not null;
create index plans_ended on plans (ended_at) where ended_at is not null;
create index plan_items_next on plan_items (plan_id, state, next_at);
alter table tasks drop column plan;
