-- News that no run will ask for any more, and at most $2 runs. Only runs that are known to own nothing are deleted.
with news as (
  delete from holdfast.cancellations c
  where not exists (select from holdfast.runs r where r.id = c.run_id and r.state = 'live')
), picked as (
  select id from holdfast.runs
  where state <> 'live' and swept and ended_at < now() - $1 * interval '1 microsecond'
  order by id
  limit $2
  for update skip locked
)
delete from holdfast.runs r using picked where r.id = picked.id
