-- +goose Up

-- What identifies the worker's process on its machine, beside its id: the boot, the namespaces in which ids and starts count, and
-- when the process began, in ticks since the boot. Null means that the system does not tell. They never change.
alter table runs add column boot_id text;
alter table runs add column pid_namespace text;
alter table runs add column process_started bigint;

-- +goose Down
alter table runs drop column process_started;
alter table runs drop column pid_namespace;
alter table runs drop column boot_id;
