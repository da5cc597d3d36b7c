-- Tickets that go from hand to hand are noted every ten seconds. A row that is locked is being claimed or marked just now.
with picked as materialized (
  select t.id
  from (select * from unnest($1::bigint[], $2::int[]) as a (task, attempt) order by task) asked,
  lateral ( -- see claim.sql
    select id from holdfast.tasks
    where id = asked.task and attempt = asked.attempt and state = 'ready' and due_at is null
      and (not again or ticketed_at < now() - interval '10 seconds' or ticketed_at > now())
    for update skip locked
  ) t
)
update holdfast.tasks t set again = true, ticketed_at = now()
from picked
where t.id = picked.id
