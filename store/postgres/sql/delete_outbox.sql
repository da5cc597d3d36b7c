-- The statement skips an outbox entry that a janitor is publishing right now. The janitor deletes it, and its tickets
-- may be published twice.
delete from holdfast.outbox where id in (
  select id from holdfast.outbox where id = any($1::bigint[]) order by id for update skip locked
)
