-- complete_alike.sql for tasks that stand near each other; see claim_near.sql. A list is returned only if some were refused.
with completed as (
  update holdfast.tasks
  set state = 'done', run_id = null, finished_at = now()
  where id between $4 and $5 and get_bit($1::bytea, (id - $4)::int) = 1
    and attempt = $2 and run_id = $3 and state = 'running'
  returning id
)
select count(*) as n, case when count(*) < $6 then array_agg(id) end as tasks from completed
