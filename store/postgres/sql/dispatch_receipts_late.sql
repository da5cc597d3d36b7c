-- Their tickets went out much later than the rows say. A sentinel sent in between must not prove them lost.
with picked as (
  select id from holdfast.tasks
  where id = any($1::bigint[]) and state = 'ready' and due_at is null and attempt = 1
  order by id
  for update skip locked
)
update holdfast.tasks t set ticketed_at = clock_timestamp() from picked where t.id = picked.id
