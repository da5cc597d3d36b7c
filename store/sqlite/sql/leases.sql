-- name: register_worker
insert into workers (id, name, host, pid, version, concurrency, queues, started_at, renewed_at, lease_until, types)
values ((coalesce((select seq from sqlite_sequence where name = 'workers'), 0) / 1000000 + 1) * 1000000 + abs(random() % 1000000),
  ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?7 + ?8, ?9)
returning id

-- name: describe_types
-- ?1 is a worker, ?2 is the present time, and ?3 is a JSON array of types.
insert into type_schemas (type, schema, worker_id, updated_at)
select value ->> 'type', value ->> 'schema', ?1, ?2 from json_each(?3) where true
on conflict (type) do update set schema = excluded.schema, worker_id = excluded.worker_id, updated_at = excluded.updated_at
where type_schemas.schema is not excluded.schema

-- name: renew
update workers
set renewed_at = ?2, lease_until = ?2 + ?3, taken = max(taken, ?4), settled = max(settled, ?5), running = ?6, report = nullif(?7, ''),
  settings = coalesce(nullif(?8, ''), settings)
where id = ?1 and state = 'live'
returning draining

-- name: renew_result
-- If the commit fails, the rows stay and a later renewal returns them. After the commit, the answer cannot be lost.
delete from cancellations where worker_id = ?1 returning id, task_id as task, attempt

-- name: deregister_worker
update workers set state = 'stopped', ended_at = ?3, running = 0, swept = ?2 where id = ?1 and state = 'live';

delete from cancellations where worker_id = ?1

-- name: handlers
select distinct h.value as type, coalesce(q.value, '') as queue
from workers w join json_each(w.types) h left join json_each(w.queues) q
where w.state = 'live' and not w.draining

-- name: drain
update workers set draining = 1 where id = ?1 and state = 'live'
