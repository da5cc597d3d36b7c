-- The state of the tasks that were not claimed, in the order of the tickets. The statement compares due times with
-- clock_timestamp(), because now() is the start of the statement: a task that became ready after the start is not
-- waiting.
select coalesce(t.id, 0) as id, coalesce(t.type, '') as type, coalesce(t.queue, '') as queue,
  coalesce(t.state, '') as state, coalesce(t.attempt, 0) as attempt, coalesce(t.worker_id, 0) as worker_id,
  coalesce(t.due_at > clock_timestamp() and t.next_run_at > clock_timestamp(), false) as waits,
  coalesce(t.crashes, 0) as crashes,
  exists (select from holdfast.workers where id = $1 and state = 'live') as live,
  now() as now
from unnest($2::bigint[], $3::int[]) with ordinality as tickets (task, attempt, n)
left join holdfast.tasks t on t.id = tickets.task
order by n
