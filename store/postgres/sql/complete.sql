-- The general statement for plain successes, of several workers or attempt numbers.
with locked as materialized (
  select t.id, m.n
  from (
    select * from unnest($1::bigint[], $2::int[], $3::bigint[]) with ordinality as a (task, attempt, worker, n) order by task
  ) m, lateral ( -- see claim.sql
    select id from holdfast.tasks
    where id = m.task and attempt = m.attempt and worker_id = m.worker and state = 'running'
    for update
  ) t
)
update holdfast.tasks t
set state = 'done', worker_id = null, finished_at = now()
from locked
where t.id = locked.id
returning locked.n
