-- Times are text, which keeps every digit; '' means none. No imported task has a ticket, so a ready task gets a due_at.
-- The statement skips a task whose id or unique key is taken.
insert into holdfast.tasks (
  id, type, queue, state, payload, unique_key, attempt, max_attempts, failures, crashes, deferrals,
  next_run_at, created_at, started_at, finished_at, due_at, dead_at, requeued, last_error, parked, idempotency_key,
  park_count, park_attempt
)
select id, type, queue, state, payload::json, nullif(unique_key, ''), attempt, max_attempts, failures, crashes, deferrals,
  next_run_at::timestamptz, created_at::timestamptz, nullif(started_at, '')::timestamptz, nullif(finished_at, '')::timestamptz,
  case when state = 'ready' then next_run_at::timestamptz end, case when state = 'dead' then finished_at::timestamptz end,
  requeued, nullif(last_error, ''), nullif(parked, ''), nullif(idempotency_key, ''),
  nullif(parks, 0), case when parks > 0 then attempt end
from unnest(
  $1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::int[], $8::int[], $9::int[], $10::int[], $11::int[],
  $12::text[], $13::text[], $14::text[], $15::text[], $16::bool[], $17::text[], $18::text[], $19::text[],
  $20::int[]
) as t (
  id, type, queue, state, payload, unique_key, attempt, max_attempts, failures, crashes, deferrals,
  next_run_at, created_at, started_at, finished_at, requeued, last_error, parked, idempotency_key, parks
)
on conflict do nothing
returning id
