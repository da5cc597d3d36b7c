-- One step over the ids above $1 up to $2. A row that a claim has locked is waited for: if it is
-- still ready then, its ticket is gone like the others. A row that somebody is publishing just now is
-- not seen: if its ticket went where the others are gone, the next sentinel proves it lost.
with picked as (
  select id from holdfast.tasks
  where id > $1 and id <= $2 and lane = $4 and state = 'ready' and due_at is null
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
