insert into holdfast.import_attempts (
  import_id, task_id, attempt, event, worker, started_at, finished_at, class, error, stack, details
)
select $1, task, attempt, event, worker, nullif(started_at, '')::timestamptz, finished_at::timestamptz,
  class, error, nullif(stack, ''), nullif(details, '')::json
from unnest(
  $2::bigint[], $3::int[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[]
) as a (task, attempt, event, worker, started_at, finished_at, class, error, stack, details)
