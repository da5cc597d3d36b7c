-- +goose Up

-- A claim looks up the gates of a task by their shape and their subject; see {{closed_gates}} and {{gate_shape}} in
-- store/postgres/sql/parts.sql. Comparing bytes is faster than comparing by a language. The index contains lifted gates,
-- too, so that the statement can exclude gates_subject, in which it would read all gates.
create index gates_lookup on gates ((
  (queue <> '')::int + (type <> '')::int * 2 + (key <> '')::int * 4 + (kind = 'limit per key')::int * 8
  + (target <> '')::int * 16 + (kind = 'limit per target')::int * 32 + (kind = 'breaker')::int * 64
), key collate "C", target collate "C", type collate "C", queue collate "C");

-- +goose Down
drop index gates_lookup;
