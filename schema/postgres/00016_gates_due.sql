-- +goose Up

-- A janitor looks several times a second for gates whose time has passed, and for lifted ones. There may be 100,000
-- pauses of keys.
create index gates_until on gates (until) where lifted_at is null and until is not null;
create index gates_lifted on gates (id) where lifted_at is not null;
create index gates_breakers on gates (id) where lifted_at is null and kind = 'breaker';

-- +goose Down
drop index gates_breakers;
drop index gates_lifted;
drop index gates_until;
