-- As in fence, and the run must be as absent as it was when it was seen.
with over as (
  select id from holdfast.runs
  where id = $1 and state = 'live' and shown and renewed_at = $2::timestamptz
    and now() - pg_postmaster_start_time() >= $3 * interval '1 microsecond'
    and now() - $4::timestamptz < interval '2 seconds'
  for update skip locked
)
update holdfast.runs r set state = 'dead', ended_at = now()
from over
where r.id = over.id and (over.id & 4294967295)::oid not in ({{signs_held}})
returning r.id
