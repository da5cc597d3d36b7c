-- The highest id that the sequence has given out or a task has.
select greatest(
  (select case when is_called then last_value else 0 end from holdfast.tasks_id_seq),
  (select coalesce(max(id), 0) from holdfast.tasks)
) as last
