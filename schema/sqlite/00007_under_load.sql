-- +goose Up

-- A claim looks up the gates of a task by their subject; see {{closed_gates}} in store/sqlite/sql/parts.sql.
create index gates_lookup on gates (key, target, type, queue) where lifted_at is null;

-- The gates for which a claim computes the targets of tasks.
create index gates_targets on gates (id) where lifted_at is null and (target <> '' or kind = 'limit per target');

-- The blocked task for which the bucket keeps a permit, its blocked_at, and when it first left the bucket; see
-- permit.Reservation. Null means none. The reservation has ended if the task is no longer blocked since then.
alter table buckets add column reserved_task integer;
alter table buckets add column reserved_since integer;
alter table buckets add column reserved_from integer;

-- +goose Down
alter table buckets drop column reserved_from;
alter table buckets drop column reserved_since;
alter table buckets drop column reserved_task;
drop index gates_targets;
drop index gates_lookup;
