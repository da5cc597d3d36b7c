-- Deletes the published outbox entries $1, and postpones the refused entries $2. The tickets of the tasks $3 were
-- published much later than ticketed_at says. A sentinel that was sent in between must not prove these tickets lost, so
-- the statement updates ticketed_at.
with late as (
  select id from holdfast.tasks
  where id = any($3::bigint[]) and state = 'ready' and due_at is null and attempt = 1
  order by id
  for update skip locked
), ticketed as (
  update holdfast.tasks t set ticketed_at = clock_timestamp() from late where t.id = late.id
), postponed as (
  update holdfast.outbox set publish_after = clock_timestamp() + interval '3 seconds' where id = any($2::bigint[])
)
delete from holdfast.outbox where id = any($1::bigint[])
