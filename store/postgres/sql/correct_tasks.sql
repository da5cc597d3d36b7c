-- One step over the ids above $1 up to $2. It corrects ready tasks whose times the store computed before the clock was
-- set back. It changes at most $3 tasks. It corrects next_run_at only if the intended wait is certain. A park lasts at
-- most ten minutes. The wait of a retry began at the time in the record of the last attempt. A task whose attempt was
-- interrupted waits for two minutes at most. A task without a delay does not wait.
with ahead as materialized (
  select t.id, t.attempt, t.due_at, t.next_run_at, t.created_at, t.started_at, t.parked, t.requeued, (
      select max(a.finished_at) from holdfast.attempts a where a.task_id = t.id and a.attempt = t.attempt - 1
    ) as failed_at
  from holdfast.tasks t
  where t.id > $1 and t.id <= $2 and t.state = 'ready'
    and (t.due_at > now() + interval '2 seconds' or t.due_at is null and t.ticketed_at > now() + interval '2 seconds')
), corrected as (
  select id, due_at, attempt, case
      when due_at is null or next_run_at <= now() then next_run_at
      when parked is not null then case when next_run_at > now() + interval '11 minutes' then now() else next_run_at end
      when attempt > 1 and failed_at > now() + interval '2 seconds' then now() + greatest(next_run_at - failed_at, interval '0')
      when attempt > 1 and started_at > now() + interval '2 seconds' then now() + greatest(next_run_at - started_at, interval '0')
      when next_run_at <= created_at or requeued and next_run_at > now() + interval '2 minutes' then now()
      else next_run_at
    end as next_run_at
  from ahead
), picked as materialized (
  select c.*
  from (
    select c.id, c.due_at, c.attempt, c.next_run_at from corrected c where c.due_at is distinct from c.next_run_at order by c.id limit $3
  ) c,
  lateral ( -- see claim.sql
    select from holdfast.tasks
    where id = c.id and state = 'ready' and attempt = c.attempt and due_at is not distinct from c.due_at
    for update
  ) t
), recorded as (
  update holdfast.attempts a set started_at = case when a.started_at > now() then now() else a.started_at end, finished_at = now()
  from picked p
  where a.task_id = p.id and a.attempt = p.attempt - 1 and a.finished_at > now() + interval '2 seconds'
), changed as (
  update holdfast.tasks t set
    due_at = case when t.due_at is not null then p.next_run_at end,
    next_run_at = p.next_run_at,
    ticketed_at = case when t.ticketed_at > now() then now() else t.ticketed_at end,
    started_at = case when t.started_at > now() then now() else t.started_at end
  from picked p
  where t.id = p.id
  returning t.id
)
select count(*) as changed, coalesce(max(id), 0) as last from changed
