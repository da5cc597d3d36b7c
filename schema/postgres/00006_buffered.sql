-- +goose Up

-- Whether the worker claimed the task before an executor was free for it. Null stands for false, and takes no room. Only a claim
-- writes it, and it says something only while the task is running. No index mentions it.
alter table tasks add column buffered boolean;

-- +goose Down
alter table tasks drop column buffered;
