-- A dispatcher holds the rows of the tasks whose tickets it publishes. The statement waits for the dispatcher and then
-- sees its mark. So a call for a ticket that arrived before the mark was committed still makes the task due.
with locked as materialized (
  select t.id, t.due_at
  from (select * from unnest($1::bigint[], $2::int[]) as a (task, attempt) order by task) tickets,
  lateral ( -- see claim.sql
    select id, due_at from holdfast.tasks
    where id = tickets.task and attempt = tickets.attempt and state = 'ready'
    for update
  ) t
)
update holdfast.tasks t set due_at = least(t.next_run_at, now()), ticketed_at = null
from locked
where t.id = locked.id and locked.due_at is null
