-- For {{signs_held}}: the runs whose signs are held in this schema, as numbers of advisory locks. Two numbers make the key of
-- a run's sign (objsubid 2), one makes that of the session that carries its renewals (objsubid 1).
select l.objid
from pg_locks l, holdfast.meta m
where m.key = 'incarnation' and l.locktype = 'advisory' and l.granted
  and l.database = (select oid from pg_database where datname = current_database())
  and l.classid = hashtext(m.value)::oid and l.objsubid in (1, 2)
