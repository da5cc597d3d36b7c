-- +goose Up

-- Whether the worker claimed the task before an executor was free for it. Null stands for false. Only a claim writes it, and it
-- says something only while the task is running.
alter table tasks add column buffered integer;

-- +goose Down
alter table tasks drop column buffered;
