-- What stands in the way of ids that stay as they are: whether there are tasks, and whose import is under way.
select exists (select from holdfast.tasks) as tasks,
  coalesce((select min(origin) from holdfast.imports where source <> $1 and committed_at is null), '') as under_way
