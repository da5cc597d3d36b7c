with picked as materialized (
  select t.id
  from (select * from unnest($1::bigint[], $2::int[]) as a (task, attempt) order by task) asked,
  lateral ( -- see claim.sql
    select id from holdfast.tasks
    where id = asked.task and attempt = asked.attempt and state = 'ready' and due_at is null
    for update
  ) t
)
update holdfast.tasks t set due_at = least(t.next_run_at, now()), ticketed_at = null
from picked
where t.id = picked.id
