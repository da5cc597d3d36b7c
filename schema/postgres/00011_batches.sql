-- +goose Up

-- A batch is a plan whose tasks end together. It is stopped if nothing happens before people have repaired dead tasks.
-- first_task and last_task are the lowest and the highest id of its tasks, or null; a list reads only these ids. A step
-- of a plan locks the tables in the same order.
alter table plans
  add column first_task bigint,
  add column last_task bigint,
  drop constraint plans_state_check,
  add constraint plans_state_check check (state in ('running', 'paused', 'stopped', 'done', 'cancelled', 'deleted'));

-- The plan that the task is a member of. It is null in nearly all rows, takes no space there, and never changes. There
-- is no index: the items of the plan have the ids of its tasks.
alter table tasks add column plan bigint;

-- All tasks of a closed item have ended.
alter table plan_items
  drop constraint plan_items_state_check,
  add constraint plan_items_state_check check (state in ('open', 'closed', 'dead'));

-- +goose Down
-- Older builds do not know the tasks of a batch, so they could not continue it.
delete from plans where kind = 'batch';
update plans set state = 'paused' where state = 'stopped';
update plans set state = 'deleted' where state = 'cancelled';
delete from plan_items where state = 'closed';
alter table plans
  drop column first_task,
  drop column last_task,
  drop constraint plans_state_check,
  add constraint plans_state_check check (state in ('running', 'paused', 'done', 'deleted'));
alter table tasks drop column plan;
alter table plan_items
  drop constraint plan_items_state_check,
  add constraint plan_items_state_check check (state in ('open', 'dead'));
