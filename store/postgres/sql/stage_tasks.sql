-- Moments travel as text, which keeps every digit; '' means none.
insert into holdfast.import_tasks (
  import_id, id, type, lane, state, payload, unique_key, attempt, max_attempts, failures, crashes, deferrals,
  next_run_at, created_at, started_at, finished_at, again, last_error, parked
)
select $1, id, type, lane, state, payload::json, nullif(unique_key, ''), attempt, max_attempts, failures, crashes, deferrals,
  next_run_at::timestamptz, created_at::timestamptz, nullif(started_at, '')::timestamptz, nullif(finished_at, '')::timestamptz,
  again, nullif(last_error, ''), nullif(parked, '')
from unnest(
  $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::int[], $9::int[], $10::int[], $11::int[], $12::int[],
  $13::text[], $14::text[], $15::text[], $16::text[], $17::bool[], $18::text[], $19::text[]
) as t (
  id, type, lane, state, payload, unique_key, attempt, max_attempts, failures, crashes, deferrals,
  next_run_at, created_at, started_at, finished_at, again, last_error, parked
)
