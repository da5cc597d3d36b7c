insert into holdfast.queues (name) select unnest($1::text[]) on conflict do nothing
