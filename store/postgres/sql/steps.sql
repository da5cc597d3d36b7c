-- The first id above $1 and the last of all: two looks into the index.
select coalesce((select min(id) from holdfast.tasks where id > $1), 0) as first,
  coalesce((select max(id) from holdfast.tasks), 0) as last
