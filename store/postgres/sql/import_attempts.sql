insert into holdfast.attempts (task_id, attempt, event, worker_name, started_at, finished_at, class, error, stack, details)
select task, attempt, event, worker_name, nullif(started_at, '')::timestamptz, finished_at::timestamptz,
  class, error, nullif(stack, ''), nullif(details, '')::json
from unnest(
  $1::bigint[], $2::int[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[]
) as a (task, attempt, event, worker_name, started_at, finished_at, class, error, stack, details)
