-- A ticket that several workers pass on is recorded at most every ten seconds. Another statement claims or marks a
-- locked row right now.
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
