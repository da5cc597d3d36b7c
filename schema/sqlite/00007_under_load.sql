-- +goose Up

-- A claim looks up the gates of a task by their subject; see {{closed_gates}} in store/sqlite/sql/parts.sql.
create index gates_lookup on gates (key, target, type, queue) where lifted_at is null;

-- The gates for which a claim computes the targets of tasks.
create index gates_targets on gates (id) where lifted_at is null and (target <> '' or kind = 'limit per target');

-- +goose Down
drop index gates_targets;
drop index gates_lookup;
