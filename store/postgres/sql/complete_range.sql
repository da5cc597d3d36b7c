-- complete.sql for results of one worker and one attempt number; see claim_range.sql. It returns the list of completed
-- tasks only if it refused some results.
with completed as (
  update holdfast.tasks t
  set state = 'done', worker_id = null, finished_at = now()
  from unnest($4::bigint[], $5::bigint[], $6::int[]) as id_range (first, last, start)
  where t.id between id_range.first and id_range.last and get_bit($1::bytea, (t.id - id_range.first)::int + id_range.start) = 1
    and attempt = $2 and worker_id = $3 and state = 'running'
  returning id
)
select count(*) as n, case when count(*) < $7 then array_agg(id) end as tasks from completed
