-- claim.sql for tickets of one attempt number: no join of what is locked, and a scan along the ids of each range from $7 to $8, of
-- which the bits of $2 from $9 on say which are meant, instead of a descent of the index for each. A row that changes meanwhile is
-- looked at again before it is written.
with live as materialized (
  select id from holdfast.runs where id = $1 and state = 'live' for key share
)
update holdfast.tasks t
set state = 'running', run_id = $1, started_at = now(), due_at = null, ticketed_at = null, parked = null, buffered = $6
from unnest($7::bigint[], $8::bigint[], $9::int[]) as id_range (first, last, start)
where t.id between id_range.first and id_range.last and get_bit($2::bytea, (t.id - id_range.first)::int + id_range.start) = 1
  and t.attempt = $3 and {{claimable}}
returning {{claimed}}, null
