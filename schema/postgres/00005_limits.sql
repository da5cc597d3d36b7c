-- +goose Up

-- Limits are gates of the kinds 'limit', 'limit per key' and 'limit per target'; see store.Limit. Null rates and
-- concurrencies allow any.
alter table gates add column rate_count integer, add column rate_per bigint, -- microseconds
  add column concurrency integer;

-- Which bucket of a limit blocks the task; see store.Scope.Bucket. '' for other gates.
alter table blocked add column bucket text not null default '';

create index blocked_bucket on blocked (gate_id, bucket, blocked_at, task_id);

-- The permits of limits. A permit whose task is at another attempt, or no longer ready or running, is free; see
-- permits_free.
create table permits (
  task_id bigint not null, -- no foreign key: each claim and success would read the old row once more
  gate_id bigint not null,
  attempt integer not null,
  bucket  text not null,
  primary key (task_id, gate_id)
) with (autovacuum_vacuum_scale_factor = 0.05);

create index permits_bucket on permits (gate_id, bucket);

-- The buckets of limits that block tasks or remember a rate. next_at is the time of the next scan of the tasks that the
-- bucket blocks: the year 9999 if a permit must become free before. See permit.Bucket about the other columns.
create table buckets (
  gate_id    bigint not null,
  bucket     text not null,
  next_at    timestamptz not null,
  allowed_at timestamptz,
  behind     boolean not null default false,
  primary key (gate_id, bucket)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

create index buckets_next on buckets (next_at);

-- +goose Down
drop table buckets, permits;
drop index blocked_bucket;
alter table blocked drop column bucket;
update tasks set due_at = now() -- these tasks need no permits any more
where due_at = timestamptz '9999-01-01 00:00:00+00'
  and id in (select task_id from blocked where gate_id in (select id from gates where kind like 'limit%'));
delete from blocked where gate_id in (select id from gates where kind like 'limit%');
delete from gates where kind like 'limit%';
alter table gates drop column rate_count, drop column rate_per, drop column concurrency;
