-- +goose Up

-- Limits are gates of the kinds 'limit', 'limit per key' and 'limit per target'; see store.Limit. Null rates and
-- concurrencies allow any.
alter table gates add column rate_count integer;
alter table gates add column rate_per integer; -- microseconds
alter table gates add column concurrency integer;

-- Which bucket of a limit blocks the task; see store.Scope.Bucket. '' for other gates.
alter table blocked add column bucket text not null default '';

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
  primary key (gate_id, bucket)
) strict, without rowid;

create index buckets_next on buckets (next_at);

-- +goose Down
drop table buckets;
drop table permits;
drop index blocked_bucket;
alter table blocked drop column bucket;
update tasks set due_at = cast(unixepoch('subsec') * 1000000 as integer) -- these tasks need no permits any more
where due_at = 253370764800000000
  and id in (select task_id from blocked where gate_id in (select id from gates where kind like 'limit%'));
delete from blocked where gate_id in (select id from gates where kind like 'limit%');
delete from gates where kind like 'limit%';
alter table gates drop column rate_count;
alter table gates drop column rate_per;
alter table gates drop column concurrency;
