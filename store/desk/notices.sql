-- name: notices_since
-- The time of the first search for events, in microseconds since 1970. $1 is the key of the time.
select cast(value as bigint) as since from holdfast.meta where key = $1

-- name: notices_begin
insert into holdfast.meta (key, value) values ($1, cast({{micros({{now}})}} as text))
on conflict do nothing

-- name: notices_groups
-- The first $2 fingerprints after $1.
with recursive {{fingerprints}}
select fingerprint from found where fingerprint is not null limit $2

-- name: notices_claim
-- Stores that groups are announced, with their present summary. $1 is a JSON array. The result omits groups that a
-- person has changed or that another process has announced since the read.
insert into holdfast.dead_groups as g (
  fingerprint, type, class, host, status, sample, error, first_at, last_at, version, announced
)
select s.fingerprint, d.type, d.class, d.host, d.status, s.sample, coalesce(t.last_error, ''), s.first_at, s.last_at,
  s.version, true
from (
  select d.fingerprint, e.version, max(task_id) as sample, min(died_at) as first_at, max(died_at) as last_at
  from {{rows(e, $1::json, fingerprint text, version bigint)}} join holdfast.deaths d on d.fingerprint = e.fingerprint
  group by d.fingerprint, e.version
) s join holdfast.deaths d on d.task_id = s.sample left join holdfast.tasks t on t.id = s.sample
where true
order by s.fingerprint
on conflict (fingerprint) do update
set sample = excluded.sample, error = excluded.error, announced = true,
  first_at = least(g.first_at, excluded.first_at), last_at = greatest(g.last_at, excluded.last_at)
where not g.announced and g.version = excluded.version
returning fingerprint, type, class, host, status, sample, error, first_at, last_at, version, note, owner, resolved_at

-- name: notices_forget
-- Deletes announced groups that no person has changed and that had no dead task for the time $1.
delete from holdfast.dead_groups as g
where version = 1 and last_at < {{now}} - {{span($1::bigint)}}
  and not exists (select 1 from holdfast.deaths d where d.fingerprint = g.fingerprint)

-- name: notices_stopped
-- The operations that stopped by themselves since $1 and are not announced, except those that select only tasks of the
-- queue $2. $3 is the limit.
select id, unannounced_at as at
from holdfast.operations
where unannounced_at > {{at($1::bigint)}} and filter ->> 'queue' is distinct from $2
order by id
limit $3

-- name: notices_stopped_claim
-- Stores that the operation $1 is announced, unless another process has announced it.
update holdfast.operations set unannounced_at = null where id = $1 and unannounced_at is not null

-- name: notices_late
-- Stores that the queues $1 are late. The result omits queues that were already announced as late.
update holdfast.queues set late_at = {{now}}
where name in (
  select name from holdfast.queues where name {{in($1::text[])}} and late_at is null order by name {{lock}}
)
returning name, late_at as at

-- name: notices_well
-- Stores that the queues $1 are no longer late.
update holdfast.queues set late_at = null
where name in (
  select name from holdfast.queues where name {{in($1::text[])}} and late_at is not null order by name {{lock}}
)
