-- name: death_groups
-- ?1 is a type, ?2 a queue and ?3 a fingerprint. ?4 and ?5 bound the time of death, ?6 is the limit, and ?7 is now.
with grouped as (
  select fingerprint, count(*) as tasks, sum(died_at > ?7 - 3600000000) as last_hour,
    min(died_at) as first_at, max(died_at) as last_at, max(task_id) as sample
  from deaths
  where (?1 = '' or type = ?1)
    and (?2 = '' or queue = ?2)
    and (?3 = '' or fingerprint = ?3)
    and (?4 = 0 or died_at >= ?4)
    and (?5 = 0 or died_at < ?5)
  group by fingerprint
  order by tasks desc, last_at desc, fingerprint
  limit ?6
)
select g.*, d.type, d.class, d.host, d.status, coalesce(t.last_error, '') as error
from grouped g
  join deaths d on d.task_id = g.sample
  join tasks t on t.id = g.sample
order by g.tasks desc, g.last_at desc, g.fingerprint

-- name: deaths_missing
-- The dead tasks without a record, with their last attempt. Outcomes other than a death may follow in the attempts of a
-- restored task, so the last one decides.
select t.id as task, t.dead_at as died_at, t.type, t.queue, coalesce(a.class, '') as class,
  coalesce(a.error, t.last_error, '') as error, coalesce(a.stack, '') as stack, coalesce(a.details, '') as details
from tasks t left join attempts a on a.rowid = (
  select rowid from attempts where task_id = t.id order by attempt desc, finished_at desc limit 1
)
where t.dead_at is not null and not exists (select 1 from deaths d where d.task_id = t.id)
order by t.id
limit ?1

-- name: deaths_record
-- Adds records of tasks that are still dead since the same time. ?1 is a JSON array.
insert into deaths (task_id, died_at, type, queue, fingerprint, class, host, status)
select t.id, t.dead_at, t.type, t.queue, m.value ->> 'fingerprint', m.value ->> 'class', m.value ->> 'host', m.value ->> 'status'
from json_each(?1) as m join tasks t on t.id = m.value ->> 'task'
where t.dead_at = m.value ->> 'died_at'
on conflict do nothing

-- name: deaths_outdated
-- The records of tasks that are not dead, or that died again since.
select d.task_id as id
from deaths d
where not exists (select 1 from tasks t where t.id = d.task_id and t.dead_at = d.died_at)
order by d.task_id
limit ?1

-- name: deaths_delete
-- Deletes the records with the ids ?1 that are outdated.
delete from deaths
where task_id in (select value from json_each(?1))
  and not exists (select 1 from tasks t where t.id = deaths.task_id and t.dead_at = deaths.died_at)
