-- One step over the ids above $1 up to $2. The statement waits for a row that a claim has locked: if the task is still
-- ready afterwards, its ticket is lost like the others. The statement does not see a task that a dispatcher is
-- publishing right now. If the ticket of such a task is lost too, a later sentinel proves it.
with picked as (
  select id from holdfast.tasks
  where id > $1 and id <= $2 and queue = $4 and state = 'ready' and due_at is null
  order by id
  limit $3
  for update
), changed as (
  update holdfast.tasks t set due_at = least(t.next_run_at, now()), ticketed_at = null
  from picked
  where t.id = picked.id
  returning t.id
)
select count(*) as changed, coalesce(max(id), 0) as last from changed
