-- claim.sql for tickets of one attempt number: no join, one look-up for each row, usually in the order of their ids. A row that
-- changes meanwhile is looked at again before it is written.
with live as materialized (
  select id from holdfast.runs where id = $1 and state = 'live' for key share
)
update holdfast.tasks t
set state = 'running', run_id = $1, started_at = now(), due_at = null, ticketed_at = null, parked = null
where id = any($2::bigint[]) and attempt = $3 and state = 'ready' and type = any($4::text[])
  and (crashes = 0 or crashes <= ($5::bigint[])[array_position($4::text[], type)])
  and (due_at is null or due_at <= now() or next_run_at <= now())
  and exists (select from live)
returning {{claimed}}, null
