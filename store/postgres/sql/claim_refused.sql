-- Where the tasks stand that were asked for and not claimed, in the order of the tickets.
-- now() is when the statement began. A task that became ready after that, and before the statement read it, does not wait.
select coalesce(t.id, 0) as id, coalesce(t.type, '') as type, coalesce(t.lane, '') as lane,
  coalesce(t.state, '') as state, coalesce(t.attempt, 0) as attempt, coalesce(t.run_id, 0) as run_id,
  coalesce(t.due_at > clock_timestamp() and t.next_run_at > clock_timestamp(), false) as waits,
  coalesce(t.crashes, 0) as crashes,
  exists (select from holdfast.runs where id = $1 and state = 'live') as live,
  now() as now
from unnest($2::bigint[], $3::int[]) with ordinality as asked (task, attempt, n)
left join holdfast.tasks t on t.id = asked.task
order by n
