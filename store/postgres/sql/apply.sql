-- name: apply
-- Applies moves of any kind. mark is the new mark of an ordered task, or 0; see package ordered. The statement applies
-- a move only if its task is still in the state for which the caller computed the move.
with moves as (
  select *
  from unnest(
    $1::bigint[], $2::int[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::int[],
    $8::int[], $9::int[], $10::int[], $11::int[], $12::bigint[],
    $13::bool[], $14::text[], $15::text[], $16::text[], $17::text[], $18::text[], $19::text[], $20::int[], $21::int[]
  ) with ordinality as m (
    task, attempt, worker, event, origins, goal, next_attempt,
    failures, crashes, deferrals, max_attempts, wait,
    reported, class, error, stack, details, fingerprint, host, status, mark, n
  )
), locked as materialized (
  select m.*, t.state, t.worker_id, t.started_at, t.type, t.queue, t.ordered, t.key, t.topic
  from (select * from moves order by task) m,
  lateral ( -- one look-up by id; see claim
    select state, worker_id, started_at, type, queue, ordered, key, topic from holdfast.tasks
    where id = m.task and attempt = m.attempt
      and worker_id is not distinct from nullif(m.worker, 0)
      and state = any(string_to_array(m.origins, ','))
    for update
  ) t
), recorded as (
  insert into holdfast.attempts (task_id, attempt, event, worker_id, worker_name, started_at, class, error, stack, details)
  select l.task, l.attempt, l.event, l.worker_id, coalesce(w.name, ''), l.started_at, l.class, l.error,
    nullif(l.stack, ''), nullif(l.details, '')::json
  from locked l left join holdfast.workers w on w.id = l.worker_id
  where l.reported
  on conflict do nothing
), notified as (
  insert into holdfast.cancellations (worker_id, task_id, attempt)
  select worker_id, task, attempt from locked
  where state = 'running' and event = 'cancel'
), died as (
  insert into holdfast.deaths (task_id, died_at, type, queue, fingerprint, class, host, status)
  select task, now(), type, queue, fingerprint, class, host, status from locked
  where goal = 'dead' and fingerprint <> ''
  on conflict (task_id) do update
  set died_at = excluded.died_at, fingerprint = excluded.fingerprint, class = excluded.class, host = excluded.host, status = excluded.status
), revived as (
  delete from holdfast.deaths where task_id = any (array(select task from locked where state = 'dead'))
), unblocked as (
  delete from holdfast.blocked where task_id = any (array(select task from locked where state = 'ready'))
), waits as ( -- a retry by a person makes an ordered task wait for its turn again
  insert into holdfast.key_waits (key, task_id) select key, task from locked where ordered is not null and event = 'requeue'
  on conflict do nothing
), topical as (
  insert into holdfast.topic_tasks (task_id, queue, topic, phase)
  select task, queue, topic, case when started_at is null then 3 else 4 end from locked where topic is not null and event = 'requeue'
  on conflict (task_id) do update set queue = excluded.queue, phase = excluded.phase
), left_topic as ( -- the task has ended before it got a slot
  delete from holdfast.topic_tasks k using locked l
  where l.topic is not null and l.state = 'ready' and l.goal <> 'ready' and k.task_id = l.task
), left_order as (
  delete from holdfast.key_waits w using locked l
  where l.ordered is not null and l.state = 'ready' and w.key = l.key and w.task_id = l.task
), counted as (
  insert into holdfast.count_deltas (queue, type, state, block, n)
  select queue, type, final, task / {{block}}, sum(n)
  from (
    select queue, type, state as final, task, -1 as n from locked where state not in ('ready', 'running')
    union all
    select queue, type, goal, task, 1 from locked where goal <> 'ready'
  ) moved
  group by 1, 2, 3, 4
)
update holdfast.tasks t
set state = m.goal, worker_id = null, attempt = m.next_attempt,
  failures = m.failures, crashes = m.crashes, deferrals = m.deferrals, max_attempts = m.max_attempts,
  next_run_at = case when m.goal = 'ready' then now() + m.wait * interval '1 microsecond' else t.next_run_at end,
  due_at = case
    when m.ordered is not null and m.event = 'requeue' then {{blocked}}
    when m.goal = 'ready' then now() + m.wait * interval '1 microsecond'
  end,
  finished_at = case when m.event = 'restore' then {{died_at}} when m.goal <> 'ready' then now() end,
  dead_at = case when m.event = 'restore' then {{died_at}} when m.goal = 'dead' then now() end,
  last_error = coalesce(nullif(m.error, ''), t.last_error),
  requeued = m.event in ('crash', 'interrupt'),
  ordered = case when m.mark > 0 and m.ordered is not null then m.mark else t.ordered end,
  ticketed_at = null, parked = null
from locked m
where t.id = m.task
returning m.n

-- name: complete
-- Applies plain successes of several workers or attempt numbers.
with locked as materialized (
  select t.id, m.n
  from (
    select * from unnest($1::bigint[], $2::int[], $3::bigint[]) with ordinality as a (task, attempt, worker, n) order by task
  ) m, lateral ( -- one look-up by id; see claim
    select id from holdfast.tasks
    where id = m.task and attempt = m.attempt and worker_id = m.worker and state = 'running'
    for update
  ) t
), completed as (
  update holdfast.tasks t
  set state = 'done', worker_id = null, finished_at = now()
  from locked
  where t.id = locked.id
  returning locked.n, t.id, t.queue, t.type
), counted as (
  insert into holdfast.count_deltas (queue, type, state, block, n)
  select queue, type, 'done', id / {{block}}, count(*) from completed group by 1, 2, 4
)
select n from completed

-- name: complete_range
-- The variant of complete for results of one worker and one attempt number; see claim_range and claim_first. All tasks
-- are in one group of the counters: the queue $8, the type $9 and the block $10. So the statement does not read the
-- groups from the rows. It returns the list of completed tasks only if it refused some results.
with completed as (
  update holdfast.tasks t
  set state = 'done', worker_id = null, finished_at = now()
  from unnest((select $4::bigint[]), (select $5::bigint[]), (select $6::int[])) as id_range (first, last, start)
  where t.id between id_range.first and id_range.last and get_bit($1::bytea, (t.id - id_range.first)::int + id_range.start) = 1
    and attempt = (select $2::int) and worker_id = (select $3::bigint) and state = 'running'
  returning id
)
insert into holdfast.count_deltas (queue, type, state, block, n)
select $8, $9, 'done', $10, count(*) from completed
returning n, case when n < $7 then array(select id from completed) end as tasks

-- name: complete_range_mixed
-- The variant of complete_range for tasks of several groups of the counters.
with completed as (
  update holdfast.tasks t
  set state = 'done', worker_id = null, finished_at = now()
  from unnest((select $4::bigint[]), (select $5::bigint[]), (select $6::int[])) as id_range (first, last, start)
  where t.id between id_range.first and id_range.last and get_bit($1::bytea, (t.id - id_range.first)::int + id_range.start) = 1
    and attempt = (select $2::int) and worker_id = (select $3::bigint) and state = 'running'
  returning id, queue, type
), counted as (
  insert into holdfast.count_deltas (queue, type, state, block, n)
  select queue, type, 'done', id / {{block}}, count(*) from completed group by 1, 2, 4
)
select count(*) as n, case when count(*) < $7 then array_agg(id) end as tasks from completed
