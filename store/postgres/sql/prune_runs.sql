-- Only runs that are known to own nothing.
with picked as (
  select id from holdfast.runs
  where state <> 'live' and swept and ended_at < now() - $1 * interval '1 microsecond'
  order by id
  limit $2
  for update skip locked
)
delete from holdfast.runs r using picked where r.id = picked.id
