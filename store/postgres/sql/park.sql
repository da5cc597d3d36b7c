-- The statement skips a task that already waits for a later time. $3 is the first wait at an attempt. Each further wait
-- at the attempt is twice as long, up to ten minutes. Otherwise workers would receive a million tasks of an unknown
-- type over and over.
with picked as materialized (
  select t.id, t.parks,
    greatest($3::bigint, least($3::bigint << least(t.parks, 16), 600000000)) * interval '1 microsecond' as wait
  from (select * from unnest($1::bigint[], $2::int[]) as a (task, attempt) order by task) tickets,
  lateral ( -- see claim.sql
    select id, case when park_attempt = attempt then park_count else 0 end as parks from holdfast.tasks
    where id = tickets.task and attempt = tickets.attempt and state = 'ready' and (due_at is null or due_at <= now() or next_run_at <= now())
    for update
  ) t
)
update holdfast.tasks t
set due_at = now() + picked.wait, next_run_at = now() + picked.wait, ticketed_at = null, parked = $4,
  park_count = picked.parks + 1, park_attempt = t.attempt
from picked
where t.id = picked.id
