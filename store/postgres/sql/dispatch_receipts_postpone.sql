update holdfast.outbox set publish_after = clock_timestamp() + interval '3 seconds' where id = any($1::bigint[])
