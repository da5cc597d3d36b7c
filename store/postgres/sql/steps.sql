-- The first id above $1 and the last id of all. It takes two index look-ups.
select coalesce((select min(id) from holdfast.tasks where id > $1), 0) as first,
  coalesce((select max(id) from holdfast.tasks), 0) as last
