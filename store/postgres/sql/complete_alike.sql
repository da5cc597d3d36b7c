-- The shortest way, for results of one run and one attempt number: no join, and usually the rows in the order of their ids, which
-- is that of the array's sorted look-ups. A row that changes meanwhile is looked at again before it is written.
update holdfast.tasks
set state = 'done', run_id = null, finished_at = now()
where id = any($1::bigint[]) and attempt = $2 and run_id = $3 and state = 'running'
returning id
