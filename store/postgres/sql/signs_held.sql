-- For {{signs_held}}: the advisory locks that are held as signs in this schema.
select l.objid
from pg_locks l, holdfast.meta m
where m.key = 'incarnation' and l.locktype = 'advisory' and l.granted
  and l.database = (select oid from pg_database where datname = current_database())
  and l.classid = hashtext(m.value)::oid and l.objsubid = 2
