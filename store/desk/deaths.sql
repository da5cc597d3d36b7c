-- name: death_groups
-- $1 is a type, $2 a queue and $3 a fingerprint. $4 and $5 bound the time of death, and $6 is the limit. $7 is true to
-- select resolved groups and false to select open ones. Null selects groups in any state, also those without dead
-- tasks.
with counted as (
  select fingerprint, count(*) filter (where matches) as tasks,
    count(*) filter (where matches and died_at > {{now}} - {{span(3600000000)}}) as last_hour,
    max(task_id) filter (where matches) as sample, min(died_at) as first_at, max(died_at) as last_at
  from (
    select fingerprint, task_id, died_at, ($1 = '' or type = $1)
      and ($2 = '' or {{queue(queue)}} = $2)
      and ($4::bigint = 0 or died_at >= {{at($4::bigint)}})
      and ($5::bigint = 0 or died_at < {{at($5::bigint)}}) as matches
    from holdfast.deaths {{groups}}
  ) d
  group by fingerprint
), known as (
  select coalesce(c.fingerprint, g.fingerprint) as fingerprint, coalesce(c.tasks, 0) as tasks,
    coalesce(c.last_hour, 0) as last_hour, coalesce(c.sample, g.sample) as sample,
    least(c.first_at, g.first_at) as first_at, greatest(c.last_at, g.last_at) as last_at,
    coalesce(c.last_at <= g.resolved_at, g.resolved_at is not null) as resolved,
    coalesce(g.note, '') as note, coalesce(g.owner, '') as owner, g.resolved_at, coalesce(g.version, 1) as version,
    g.type, g.class, g.host, g.status, g.error
  from counted c full join (select * from holdfast.dead_groups {{groups}}) g on g.fingerprint = c.fingerprint
), picked as (
  select * from known
  where $7::bool is null
    or $7 = resolved and (tasks > 0 or $7 and ($1 = '' or type = $1) and $2 = '' and $4::bigint = 0 and $5::bigint = 0)
  order by tasks desc, last_at desc, fingerprint
  limit $6
)
select picked.fingerprint, picked.tasks, picked.last_hour, picked.sample, picked.first_at, picked.last_at,
  picked.resolved, picked.note, picked.owner, picked.resolved_at, picked.version,
  coalesce(d.type, picked.type) as type, coalesce(d.class, picked.class) as class,
  coalesce(d.host, picked.host) as host, coalesce(d.status, picked.status) as status,
  coalesce(case when d.task_id is null then picked.error else t.last_error end, '') as error
from picked
  left join holdfast.deaths d on d.task_id = picked.sample and d.fingerprint = picked.fingerprint
  left join holdfast.tasks t on t.id = d.task_id
order by picked.tasks desc, picked.last_at desc, picked.fingerprint

-- name: death_groups_counted
-- The numbers of open and of returned groups, among the first $2 that have dead tasks and a fingerprint after $1.
with recursive {{fingerprints}}
select count(*) filter (where g.resolved_at is null) as open,
  count(*) filter (where exists (
    select 1 from holdfast.deaths d where d.fingerprint = f.fingerprint and d.died_at > g.resolved_at
  )) as returned
from (select fingerprint from found where fingerprint is not null limit $2) f
  left join holdfast.dead_groups g on g.fingerprint = f.fingerprint

-- name: fingerprints
-- The first $2 fingerprints of known groups that begin with the digits $1, which are not all digits of a fingerprint.
with recursive {{fingerprints}}
select fingerprint from (
  select fingerprint from (select fingerprint from found where fingerprint is not null limit $2) f
  union
  select fingerprint from (select fingerprint from holdfast.dead_groups where fingerprint > $1 order by fingerprint limit $2) g
) u
where fingerprint < $1 || 'g'
order by fingerprint
limit $2

-- name: death_group_tasks
-- The number of dead tasks of the group $1, by queue and hours since the death. Ages of 24 hours and more count as 24.
select queue, cast(least(greatest(floor({{age(died_at)}} / 3600), 0), 24) as int) as hour, count(*) as tasks
from holdfast.deaths
where fingerprint = $1
group by 1, 2

-- name: death_group_known
-- Stores the present summary of the group $1, and locks its row. Without dead tasks it changes nothing.
insert into holdfast.dead_groups as g (fingerprint, type, class, host, status, sample, error, first_at, last_at)
select s.fingerprint, d.type, d.class, d.host, d.status, s.sample, coalesce(t.last_error, ''), s.first_at, s.last_at
from (
  select fingerprint, max(task_id) as sample, min(died_at) as first_at, max(died_at) as last_at
  from holdfast.deaths
  where fingerprint = $1
  group by fingerprint
) s join holdfast.deaths d on d.task_id = s.sample left join holdfast.tasks t on t.id = s.sample
where true
on conflict (fingerprint) do update
set sample = excluded.sample, error = excluded.error,
  first_at = least(g.first_at, excluded.first_at), last_at = greatest(g.last_at, excluded.last_at)

-- name: death_group_lock
-- Locks the row of the group $1.
select fingerprint from holdfast.dead_groups where fingerprint = $1 {{lock}}

-- name: death_group_change
-- Changes the group $1. $2 is the note and $3 the owner. $4 is 1 to resolve the group and -1 to reopen it. A reopened
-- group is treated as announced.
update holdfast.dead_groups
set note = $2, owner = $3, version = version + 1,
  announced = case $4::int when 1 then false when -1 then true else announced end,
  resolved_at = case $4::int when 1 then {{now}} when -1 then null else resolved_at end
where fingerprint = $1

-- name: deaths_record
-- Adds records of tasks that are still dead since the time in the record. $1 is a JSON array.
insert into holdfast.deaths (task_id, died_at, type, queue, fingerprint, class, host, status)
select t.id, t.dead_at, t.type, t.queue, m.fingerprint, m.class, m.host, m.status
from {{rows(m, $1::json, task bigint, died_at bigint, fingerprint text, class text, host text, status int)}}
  join holdfast.tasks t on t.id = m.task
where t.dead_at = {{at(m.died_at)}}
on conflict do nothing

-- name: deaths_outdated
-- The records of tasks that are no longer dead, or that died again later.
select d.task_id as id
from holdfast.deaths d
where not exists (select 1 from holdfast.tasks t where t.id = d.task_id and t.dead_at = d.died_at)
order by d.task_id
limit $1

-- name: deaths_delete
-- Deletes the outdated records among the ids $1.
delete from holdfast.deaths as d
where d.task_id {{in($1::bigint[])}}
  and not exists (select 1 from holdfast.tasks t where t.id = d.task_id and t.dead_at = d.died_at)

-- name: deaths_keep
-- Stores a summary of the groups of the tasks $1, before their records are deleted. The statement locks the rows in the
-- order of the fingerprints.
insert into holdfast.dead_groups as g (fingerprint, type, class, host, status, sample, error, first_at, last_at)
select s.fingerprint, d.type, d.class, d.host, d.status, s.sample, coalesce(t.last_error, ''), s.first_at, s.last_at
from (
  select fingerprint, max(task_id) as sample, min(died_at) as first_at, max(died_at) as last_at
  from holdfast.deaths
  where task_id {{in($1::bigint[])}}
  group by fingerprint
) s join holdfast.deaths d on d.task_id = s.sample left join holdfast.tasks t on t.id = s.sample
where true
order by s.fingerprint
on conflict (fingerprint) do update
set sample = greatest(g.sample, excluded.sample),
  error = case when excluded.sample >= g.sample then excluded.error else g.error end,
  first_at = least(g.first_at, excluded.first_at), last_at = greatest(g.last_at, excluded.last_at)
where excluded.first_at < g.first_at or excluded.last_at > g.last_at
