-- claim.sql for tickets of one attempt number. It needs no join with locked rows. It scans each range of ids from $7 to
-- $8 instead of descending the index for each id. The bits of $2 from $9 on say which ids are in the set. If a row
-- changes meanwhile, the server checks the conditions again before it updates the row.
with live as materialized (
  select id from holdfast.workers where id = $1 and state = 'live' for key share
)
update holdfast.tasks t
set state = 'running', worker_id = $1, started_at = now(), due_at = null, ticketed_at = null, parked = null, buffered = $6
from unnest($7::bigint[], $8::bigint[], $9::int[]) as id_range (first, last, start)
where t.id between id_range.first and id_range.last and get_bit($2::bytea, (t.id - id_range.first)::int + id_range.start) = 1
  and t.attempt = $3 and {{claimable}}
returning {{claimed}}, null
