-- +goose Up

-- Plans store tasks at times that they determine; see store.Plans. Each step increases the version, and most change
-- next_at, the time of the next step. It is null if no time makes a step possible. spec has what was asked for, and
-- progress how far the plan is.
create table plans (
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

create unique index plans_name on plans (kind, name) where ended_at is null;
create index plans_next on plans (next_at) where next_at is not null;
create index plans_ended on plans (ended_at) where ended_at is not null;

-- The parts of plans that need a row of their own, such as open slices; see store.PlanItem. next_at is null if no time
-- needs a look at the item.
create table plan_items (
  plan_id integer not null references plans on delete cascade,
  item    text not null,
  state   text not null check (state in ('open', 'dead')),
  next_at integer,
  data    text not null,
  primary key (plan_id, item)
) strict, without rowid;

create index plan_items_next on plan_items (plan_id, state, next_at);

-- +goose Down
drop table plan_items;
drop table plans;
