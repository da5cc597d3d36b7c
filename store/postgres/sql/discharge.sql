-- A receipt that a janitor is publishing just now is left to it, and perhaps published once more.
delete from holdfast.outbox where id in (
  select id from holdfast.outbox where id = any($1::bigint[]) order by id for update skip locked
)
