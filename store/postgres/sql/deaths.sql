-- name: death_groups
-- $1 is a type, $2 a queue, $3 a fingerprint; $4 and $5 bound the time of death, and $6 is the limit.
with grouped as (
  select fingerprint, count(*) as tasks, count(*) filter (where died_at > now() - interval '1 hour') as last_hour,
    min(died_at) as first_at, max(died_at) as last_at, max(task_id) as sample
  from holdfast.deaths
  where ($1 = '' or type = $1)
    and ($2 = '' or queue = $2)
    and ($3 = '' or fingerprint = $3)
    and ($4::bigint = 0 or died_at >= timestamptz 'epoch' + $4::bigint * interval '1 microsecond')
    and ($5::bigint = 0 or died_at < timestamptz 'epoch' + $5::bigint * interval '1 microsecond')
  group by fingerprint
  order by tasks desc, last_at desc, fingerprint
  limit $6
)
select g.*, d.type, d.class, d.host, d.status, coalesce(t.last_error, '') as error
from grouped g
  join holdfast.deaths d on d.task_id = g.sample
  join holdfast.tasks t on t.id = g.sample
order by g.tasks desc, g.last_at desc, g.fingerprint

-- name: deaths_missing
-- The dead tasks without a record, with their last attempt. Outcomes other than a death may follow in the attempts of a
-- restored task, so the last one decides.
select t.id as task, t.dead_at as died_at, t.type, t.queue, coalesce(a.class, '') as class,
  coalesce(a.error, t.last_error, '') as error, coalesce(a.stack, '') as stack, coalesce(a.details::text, '') as details
from (
  select id, dead_at, type, queue, last_error from holdfast.tasks
  where dead_at is not null and not exists (select from holdfast.deaths d where d.task_id = id)
  order by id
  limit $1
) t left join lateral (
  select class, error, stack, details from holdfast.attempts where task_id = t.id order by attempt desc, finished_at desc limit 1
) a on true

-- name: deaths_record
-- Adds records of tasks that are still dead since the same time. $1 is a JSON array.
insert into holdfast.deaths (task_id, died_at, type, queue, fingerprint, class, host, status)
select t.id, t.dead_at, t.type, t.queue, m.fingerprint, m.class, m.host, m.status
from json_to_recordset($1::json) as m (task bigint, died_at bigint, fingerprint text, class text, host text, status int)
  join holdfast.tasks t on t.id = m.task
where t.dead_at = timestamptz 'epoch' + m.died_at * interval '1 microsecond'
on conflict do nothing

-- name: deaths_outdated
-- The records of tasks that are not dead, or that died again since.
select d.task_id as id
from holdfast.deaths d
where not exists (select from holdfast.tasks t where t.id = d.task_id and t.dead_at = d.died_at)
order by d.task_id
limit $1

-- name: deaths_delete
-- Deletes the records with the ids $1 that are outdated.
delete from holdfast.deaths d
where d.task_id = any ($1::bigint[]) and not exists (select from holdfast.tasks t where t.id = d.task_id and t.dead_at = d.died_at)
