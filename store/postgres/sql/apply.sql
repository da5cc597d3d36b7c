-- Moves of any kind, each only if its task still stands where the judge saw it.
with moves as (
  select *
  from unnest(
    $1::bigint[], $2::int[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::int[],
    $8::int[], $9::int[], $10::int[], $11::int[], $12::bigint[],
    $13::bool[], $14::text[], $15::text[], $16::text[], $17::text[]
  ) with ordinality as m (
    task, attempt, run, event, origins, goal, next_attempt,
    failures, crashes, deferrals, max_attempts, wait,
    reported, class, error, stack, details, n
  )
), locked as materialized (
  select m.*, t.state, t.run_id, t.started_at
  from (select * from moves order by task) m,
  lateral ( -- see claim.sql
    select state, run_id, started_at from holdfast.tasks
    where id = m.task and attempt = m.attempt
      and run_id is not distinct from nullif(m.run, 0)
      and state = any(string_to_array(m.origins, ','))
    for update
  ) t
), recorded as (
  insert into holdfast.attempts (task_id, attempt, event, run_id, worker, started_at, class, error, stack, details)
  select l.task, l.attempt, l.event, l.run_id, coalesce(r.name, ''), l.started_at, l.class, l.error,
    nullif(l.stack, ''), nullif(l.details, '')::json
  from locked l left join holdfast.runs r on r.id = l.run_id
  where l.reported
  on conflict do nothing
), told as (
  insert into holdfast.cancellations (run_id, task_id, attempt)
  select run_id, task, attempt from locked
  where state = 'running' and event = 'cancel'
)
update holdfast.tasks t
set state = m.goal, run_id = null, attempt = m.next_attempt,
  failures = m.failures, crashes = m.crashes, deferrals = m.deferrals, max_attempts = m.max_attempts,
  next_run_at = case when m.goal = 'ready' then now() + m.wait * interval '1 microsecond' else t.next_run_at end,
  due_at = case when m.goal = 'ready' then now() + m.wait * interval '1 microsecond' end,
  finished_at = case when m.goal <> 'ready' then now() end,
  dead_at = case when m.goal = 'dead' then now() end,
  last_error = coalesce(nullif(m.error, ''), t.last_error),
  again = m.event in ('crash', 'interrupt'),
  ticketed_at = null, parked = null
from locked m
where t.id = m.task
returning m.n
