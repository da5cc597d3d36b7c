-- name: export_keys
-- At most $2 unique keys after $1 that are kept, in their order.
select key, task_id as task, created_at, until from holdfast.kept_keys
where key > $1 and until > {{now}}
order by key
limit $2

-- name: import_keys
-- Stores unique keys that are kept, a JSON array. A key whose time has passed is replaced.
insert into holdfast.kept_keys (key, task_id, created_at, until)
select r.key, r.task, {{at(r.created_at)}}, {{at(r.until)}}
from {{rows(r, $1::json, key text, task bigint, created_at bigint, until bigint)}}
where true
on conflict (key) do update set task_id = excluded.task_id, created_at = excluded.created_at, until = excluded.until
where kept_keys.until <= {{now}}
