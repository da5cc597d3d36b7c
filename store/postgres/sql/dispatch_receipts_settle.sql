-- Deletes the receipts $1, which were published, and lets the receipts $2 wait, which were refused. The tickets of the
-- tasks $3 went out much later than the rows say: a sentinel sent in between must not prove them lost.
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
