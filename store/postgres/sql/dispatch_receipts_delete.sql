delete from holdfast.outbox where id = any($1::bigint[])
