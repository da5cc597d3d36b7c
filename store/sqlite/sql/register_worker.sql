insert into workers (name, host, pid, version, concurrency, queues, started_at, renewed_at, lease_until, types)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?7 + ?8, ?9)
returning id
