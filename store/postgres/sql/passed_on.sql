-- If several workers pass a ticket on, it is recorded at most every ten seconds. The statement skips locked rows,
-- because another statement is claiming or marking them.
with picked as materialized (
  select t.id
  from (select * from unnest($1::bigint[], $2::int[]) as a (task, attempt) order by task) tickets,
  lateral ( -- see claim.sql
    select id from holdfast.tasks
    where id = tickets.task and attempt = tickets.attempt and state = 'ready' and due_at is null
      and (not requeued or ticketed_at < now() - interval '10 seconds' or ticketed_at > now())
    for update skip locked
  ) t
)
update holdfast.tasks t set requeued = true, ticketed_at = now()
from picked
where t.id = picked.id
