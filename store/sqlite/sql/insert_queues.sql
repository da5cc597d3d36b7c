insert into queues (name, created_at) select value, ?2 from json_each(?1) where true on conflict do nothing
