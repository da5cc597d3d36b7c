-- claim.sql for tickets of one attempt number. It needs no join with locked rows. Instead of a descent of the index for
-- each id, it scans each range of ids from $7 to $8; the bits of $2 from $9 on say which ids are in the set. The server
-- checks a row that changes meanwhile again before it writes it.
with live as materialized (
  select id from holdfast.runs where id = $1 and state = 'live' for key share
)
update holdfast.tasks t
set state = 'running', run_id = $1, started_at = now(), due_at = null, ticketed_at = null, parked = null, buffered = $6
from unnest($7::bigint[], $8::bigint[], $9::int[]) as id_range (first, last, start)
where t.id between id_range.first and id_range.last and get_bit($2::bytea, (t.id - id_range.first)::int + id_range.start) = 1
  and t.attempt = $3 and {{claimable}}
returning {{claimed}}, null
