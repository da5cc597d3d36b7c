insert into holdfast.workers (name, host, pid, version, concurrency, queues, lease_until, boot_id, pid_namespace, process_started, types)
values ($1, $2, $3, $4, $5, $6::text[], now() + $7 * interval '1 microsecond', nullif($8, ''), nullif($9, ''), nullif($10, 0), $11::text[])
returning id
