-- A task that waits for a later time has moved on.
with picked as materialized (
  select t.id
  from (select * from unnest($1::bigint[], $2::int[]) as a (task, attempt) order by task) asked,
  lateral ( -- see claim.sql
    select id from holdfast.tasks
    where id = asked.task and attempt = asked.attempt and state = 'ready' and (due_at is null or due_at <= now())
    for update
  ) t
)
update holdfast.tasks t
set due_at = now() + $3 * interval '1 microsecond', next_run_at = now() + $3 * interval '1 microsecond',
  ticketed_at = null, parked = $4
from picked
where t.id = picked.id
