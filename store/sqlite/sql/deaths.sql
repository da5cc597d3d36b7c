-- name: death_groups
-- ?1 is a type, ?2 a queue and ?3 a fingerprint. ?4 and ?5 bound the time of death, and ?6 is the limit. ?7 is whether to
-- select resolved groups; null selects groups in any state, also those without dead tasks. ?8 is now.
with counted as (
  select fingerprint, sum(matches) as tasks, sum(matches and died_at > ?8 - 3600000000) as last_hour,
    max(iif(matches, task_id, null)) as sample, min(died_at) as first_at, max(died_at) as last_at
  from (
    select fingerprint, task_id, died_at, (?1 = '' or type = ?1)
      and (?2 = '' or substr(queue || '.', 1, instr(queue || '.', '.') - 1) = ?2)
      and (?4 = 0 or died_at >= ?4)
      and (?5 = 0 or died_at < ?5) as matches
    from deaths {{groups}}
  )
  group by fingerprint
), known as (
  select coalesce(c.fingerprint, g.fingerprint) as fingerprint, coalesce(c.tasks, 0) as tasks, coalesce(c.last_hour, 0) as last_hour,
    coalesce(c.sample, g.sample) as sample, min(coalesce(c.first_at, g.first_at), coalesce(g.first_at, c.first_at)) as first_at,
    max(coalesce(c.last_at, g.last_at), coalesce(g.last_at, c.last_at)) as last_at,
    coalesce(c.last_at <= g.resolved_at, g.resolved_at is not null) as resolved,
    coalesce(g.note, '') as note, coalesce(g.owner, '') as owner, g.resolved_at, coalesce(g.version, 1) as version,
    g.type, g.class, g.host, g.status, g.error
  from counted c full join (select * from dead_groups {{groups}}) g on g.fingerprint = c.fingerprint
), picked as (
  select * from known
  where ?7 is null
    or ?7 = resolved and (tasks > 0 or ?7 and (?1 = '' or type = ?1) and ?2 = '' and ?4 = 0 and ?5 = 0)
  order by tasks desc, last_at desc, fingerprint
  limit ?6
)
select picked.fingerprint, picked.tasks, picked.last_hour, picked.sample, picked.first_at, picked.last_at, picked.resolved,
  picked.note, picked.owner, picked.resolved_at, picked.version,
  coalesce(d.type, picked.type) as type, coalesce(d.class, picked.class) as class, coalesce(d.host, picked.host) as host,
  coalesce(d.status, picked.status) as status, coalesce(iif(d.task_id is null, picked.error, t.last_error), '') as error
from picked
  left join deaths d on d.task_id = picked.sample and d.fingerprint = picked.fingerprint
  left join tasks t on t.id = d.task_id
order by picked.tasks desc, picked.last_at desc, picked.fingerprint

-- name: death_groups_counted
-- How many groups are open and how many have returned, of the first ?2 with dead tasks and a fingerprint after ?1.
with recursive {{fingerprints}}
select count(*) filter (where g.resolved_at is null) as open,
  count(*) filter (where exists (select 1 from deaths d where d.fingerprint = f.fingerprint and d.died_at > g.resolved_at)) as returned
from (select fingerprint from found where fingerprint is not null limit ?2) f
  left join dead_groups g on g.fingerprint = f.fingerprint

-- name: death_group_tasks
-- The dead tasks of the group ?1 by queue and by the number of hours since the death. All hours after the first 24 count
-- as one. ?2 is now.
select queue, min(max((?2 - died_at) / 3600000000, 0), 24) as hour, count(*) as tasks
from deaths
where fingerprint = ?1
group by 1, 2

-- name: death_group_known
-- Stores what is seen now of the group ?1. Without dead tasks it changes nothing.
insert into dead_groups (fingerprint, type, class, host, status, sample, error, first_at, last_at)
select s.fingerprint, d.type, d.class, d.host, d.status, s.sample, coalesce(t.last_error, ''), s.first_at, s.last_at
from (
  select fingerprint, max(task_id) as sample, min(died_at) as first_at, max(died_at) as last_at
  from deaths
  where fingerprint = ?1
  group by fingerprint
) s join deaths d on d.task_id = s.sample left join tasks t on t.id = s.sample
where true
on conflict (fingerprint) do update
set sample = excluded.sample, error = excluded.error,
  first_at = min(first_at, excluded.first_at), last_at = max(last_at, excluded.last_at)

-- name: death_group_lock
-- The transaction has locked the row of the group ?1, as it has locked all others.
select fingerprint from dead_groups where fingerprint = ?1

-- name: death_group_change
-- Changes the group ?1. ?2 is the note, ?3 the owner, ?4 is 1 to resolve the group and -1 to reopen it, after which
-- its tasks are known. ?5 is now.
update dead_groups
set note = ?2, owner = ?3, version = version + 1, announced = case ?4 when 1 then 0 when -1 then 1 else announced end,
  resolved_at = case ?4 when 1 then ?5 when -1 then null else resolved_at end
where fingerprint = ?1

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

-- name: deaths_keep
-- Stores what was seen of the groups of the tasks ?1, whose records are about to be deleted.
insert into dead_groups (fingerprint, type, class, host, status, sample, error, first_at, last_at)
select s.fingerprint, d.type, d.class, d.host, d.status, s.sample, coalesce(t.last_error, ''), s.first_at, s.last_at
from (
  select fingerprint, max(task_id) as sample, min(died_at) as first_at, max(died_at) as last_at
  from deaths
  where task_id in (select value from json_each(?1))
  group by fingerprint
) s join deaths d on d.task_id = s.sample left join tasks t on t.id = s.sample
where true
on conflict (fingerprint) do update
set sample = max(sample, excluded.sample), error = iif(excluded.sample >= sample, excluded.error, error),
  first_at = min(first_at, excluded.first_at), last_at = max(last_at, excluded.last_at)
where excluded.first_at < first_at or excluded.last_at > last_at
