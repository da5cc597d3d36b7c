insert into holdfast.runs (name, host, pid, version, concurrency, lanes, lease_until)
values ($1, $2, $3, $4, $5, $6::text[], now() + $7 * interval '1 microsecond')
returning id
