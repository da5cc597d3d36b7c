-- +goose Up

-- The presence and the process of a worker. present says whether the process held its presence in this database and in the
-- broker at its last renewal; a worker that is not present is fenced by its lease only. The other columns identify the
-- process on its machine beside its PID: the boot, the PID namespace, and the start of the process in clock ticks since the
-- boot. They are null if the system does not report them.
alter table workers
  add column present boolean not null default false,
  add column boot_id text,
  add column pid_namespace text,
  add column process_started bigint;

-- Janitors read it several times a second. A renewal changes no column in it.
create index workers_present on workers (id) where present and state = 'live';

-- +goose Down
drop index workers_present;
alter table workers drop column process_started, drop column pid_namespace, drop column boot_id, drop column present;
