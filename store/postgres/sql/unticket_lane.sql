-- One step over the ids above $2. A row that somebody has locked is waited for: if it is
-- still ready then, its ticket is gone like the others.
with picked as (
  select id from holdfast.tasks
  where id > $2 and lane = $1 and state = 'ready' and due_at is null
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
