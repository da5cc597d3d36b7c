-- claim_alike.sql for tickets whose tasks mostly stand near others, as those of a call do and those of a message: a walk along the ids of each
-- stretch from $6 to $7, of which the bits of $2 from $8 on say which are meant, instead of a descent of the index for each.
with live as materialized (
  select id from holdfast.runs where id = $1 and state = 'live' for key share
)
update holdfast.tasks t
set state = 'running', run_id = $1, started_at = now(), due_at = null, ticketed_at = null, parked = null
from unnest($6::bigint[], $7::bigint[], $8::int[]) as stretch (first, last, start)
where t.id between stretch.first and stretch.last and get_bit($2::bytea, (t.id - stretch.first)::int + stretch.start) = 1
  and attempt = $3 and state = 'ready' and type = any($4::text[])
  and (crashes = 0 or crashes <= ($5::bigint[])[array_position($4::text[], type)])
  and (due_at is null or due_at <= now() or next_run_at <= now())
  and exists (select from live)
returning {{claimed}}, null
