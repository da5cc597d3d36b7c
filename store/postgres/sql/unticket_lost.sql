-- One step over the ids above $2. Tasks inserted since the oldest receipt of their lane that
-- stands have perhaps never had a ticket; the receipt will give them one.
with proved as (
  select l.name, least(
    l.drained_through - $1 * interval '1 microsecond',
    (select min(o.created_at) from holdfast.outbox o where o.lane = l.name)
  ) as before
  from holdfast.lanes l
  where l.drained_through is not null
), picked as (
  select t.id
  from holdfast.tasks t join proved p on p.name = t.lane
  where t.id > $2 and t.state = 'ready' and t.due_at is null and t.ticketed_at < p.before
  order by t.id
  limit $3
  for update of t skip locked
), changed as (
  update holdfast.tasks t set due_at = least(t.next_run_at, now()), ticketed_at = null
  from picked
  where t.id = picked.id
  returning t.id
)
select count(*) as changed, coalesce(max(id), 0) as last from changed
