-- The highest id that was ever given out, or taken without asking.
select greatest(
  (select case when is_called then last_value else 0 end from holdfast.tasks_id_seq),
  (select coalesce(max(id), 0) from holdfast.tasks)
) as last
