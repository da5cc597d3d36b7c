-- +goose Up

-- Whether the process held both signs of its presence at its newest renewal: the one in this database and the one in
-- the broker. Who is not shown is left to its lease.
alter table runs add column shown boolean not null default false;

-- Asked many times a second. A renewal changes nothing that is in it.
create index runs_shown on runs (id) where shown and state = 'live';

-- +goose Down
drop index runs_shown;
alter table runs drop column shown;
