-- A task that was created less than $1 ago cannot have ended more than $1 ago. Ids ascend with the creation time,
-- except for long transactions. So a binary search finds approximately the first such task. Without the bound, every
-- call would read the whole table.
with recursive halves as (
  select (select min(id) from holdfast.tasks) as low, (select max(id) from holdfast.tasks) as high
  union all
  select case when old then middle + 1 else low end, case when old then high else middle - 1 end
  from (
    select low, high, low + (high - low) / 2 as middle, (
      select created_at < now() - $1 * interval '1 microsecond'
      from holdfast.tasks where id >= low + (high - low) / 2 order by id limit 1
    ) as old
    from halves where low <= high
  ) step
)
select coalesce(max(low), 0) as bound from halves
