-- One step over the ids above $1 up to $2. $4 and $5 are lanes and the moments through which they are
-- proved drained, $6 is the slack. Tasks inserted since the oldest receipt of their lane that
-- stands have perhaps never had a ticket; the receipt will give them one.
with proved as materialized (
  select p.lane, p.moment, (select min(o.created_at) from holdfast.outbox o where o.lane = p.lane) as uncertain
  from unnest($4::text[], $5::text[]::timestamptz[]) as p (lane, moment)
), picked as (
  select t.id
  from holdfast.tasks t join proved p on p.lane = t.lane
  where t.id > $1 and t.id <= $2 and t.state = 'ready' and t.due_at is null
    and (p.uncertain is null or t.ticketed_at < p.uncertain)
    and t.ticketed_at < p.moment - case
      -- These went to the other queue of the lane, of which the sentinel proves nothing. It is short.
      when t.again then 10 * $6::bigint * interval '1 microsecond'
      -- The ticket of a new task goes out a moment after the row says so: see dispatch_receipts.sql.
      else least($6::bigint * interval '1 microsecond', interval '10 seconds')
    end
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
