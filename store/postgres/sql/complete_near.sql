-- complete.sql for results of one run and one attempt number; see claim_near.sql. It returns a list only if it refused
-- some results.
with completed as (
  update holdfast.tasks t
  set state = 'done', run_id = null, finished_at = now()
  from unnest($4::bigint[], $5::bigint[], $6::int[]) as id_range (first, last, start)
  where t.id between id_range.first and id_range.last and get_bit($1::bytea, (t.id - id_range.first)::int + id_range.start) = 1
    and attempt = $2 and run_id = $3 and state = 'running'
  returning id
)
select count(*) as n, case when count(*) < $7 then array_agg(id) end as tasks from completed
