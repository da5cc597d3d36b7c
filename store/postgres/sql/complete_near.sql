-- complete_alike.sql for tasks of which most stand near others; see claim_near.sql. A list is returned only if some were refused.
with completed as (
  update holdfast.tasks t
  set state = 'done', run_id = null, finished_at = now()
  from unnest($4::bigint[], $5::bigint[], $6::int[]) as stretch (first, last, start)
  where t.id between stretch.first and stretch.last and get_bit($1::bytea, (t.id - stretch.first)::int + stretch.start) = 1
    and attempt = $2 and run_id = $3 and state = 'running'
  returning id
)
select count(*) as n, case when count(*) < $7 then array_agg(id) end as tasks from completed
