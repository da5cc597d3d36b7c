-- +goose Up

-- A claim looks up the gates of a task by their subject; see {{closed_gates}} in store/postgres/sql/parts.sql. The index
-- contains lifted gates, too, so that the statement can exclude gates_subject, which would read all gates.
create index gates_lookup on gates (key, target, type, queue);

-- The gates for which a claim computes the targets of tasks.
create index gates_targets on gates (id) where target <> '' or kind = 'limit per target';

-- +goose Down
drop index gates_targets, gates_lookup;
