-- A task that waits for a later time has moved on. The wait grows with the task's age: a million of
-- a type that no worker knows would else go round for ever.
with picked as materialized (
  select t.id
  from (select * from unnest($1::bigint[], $2::int[]) as a (task, attempt) order by task) asked,
  lateral ( -- see claim.sql
    select id from holdfast.tasks
    where id = asked.task and attempt = asked.attempt and state = 'ready' and (due_at is null or due_at <= now() or next_run_at <= now())
    for update
  ) t
)
update holdfast.tasks t
set due_at = now() + greatest($3 * interval '1 microsecond', least((now() - created_at) * 0.2, interval '10 minutes')),
  next_run_at = now() + greatest($3 * interval '1 microsecond', least((now() - created_at) * 0.2, interval '10 minutes')),
  ticketed_at = null, parked = $4
from picked
where t.id = picked.id
