-- name: notices_since
-- The time of the first look for events, in microseconds since 1970. ?1 is the key of the time.
select cast(value as integer) as since from meta where key = ?1

-- name: notices_begin
-- ?2 is now.
insert into meta (key, value) values (?1, cast(?2 as text)) on conflict do nothing

-- name: notices_groups
-- The next fingerprints after ?1, at most ?2.
with recursive {{fingerprints}}
select fingerprint from found where fingerprint is not null limit ?2

-- name: notices_due
-- Those of the groups ?1 that were not announced since they were last resolved. Deaths count that are later than that and
-- than ?2, and not in the queue ?3. ?4 is the number that a group must have, and ?5 the number up to which to count. ?6 is
-- whether to announce new groups, ?7 whether to announce resolved ones, and ?8 the limit.
select fingerprint, version, tasks
from (
  select g.value as fingerprint, coalesce(k.version, 1) as version, (
      select count(*)
      from (
        select 1 from deaths d
        where d.fingerprint = g.value and substr(d.queue || '.', 1, instr(d.queue || '.', '.') - 1) <> ?3 and d.died_at > max(coalesce(k.resolved_at, 0), ?2)
        limit ?5
      )
    ) as tasks
  from json_each(?1) as g left join dead_groups k on k.fingerprint = g.value
  where not coalesce(k.announced, 0) and iif(k.resolved_at is null, ?6, ?7)
)
where tasks >= ?4
limit ?8

-- name: notices_claim
-- Remembers that groups were announced, with what is seen of them now. ?1 is a JSON array. A group that a person has
-- changed, or that another process has announced meanwhile, is not in the result.
insert into dead_groups (fingerprint, type, class, host, status, sample, error, first_at, last_at, version, announced)
select s.fingerprint, d.type, d.class, d.host, d.status, s.sample, coalesce(t.last_error, ''), s.first_at, s.last_at, s.version, 1
from (
  select d.fingerprint, e.value ->> 'version' as version, max(task_id) as sample, min(died_at) as first_at, max(died_at) as last_at
  from json_each(?1) as e join deaths d on d.fingerprint = e.value ->> 'fingerprint'
  group by d.fingerprint
) s join deaths d on d.task_id = s.sample left join tasks t on t.id = s.sample
where true
on conflict (fingerprint) do update
set sample = excluded.sample, error = excluded.error, announced = 1,
  first_at = min(first_at, excluded.first_at), last_at = max(last_at, excluded.last_at)
where not announced and version = excluded.version
returning fingerprint, type, class, host, status, sample, error, first_at, last_at, version, note, owner, resolved_at

-- name: notices_forget
-- Forgets announced groups that no person has changed and that have had no dead task for the time ?1. ?2 is now.
delete from dead_groups
where version = 1 and last_at < ?2 - ?1
  and not exists (select 1 from deaths d where d.fingerprint = dead_groups.fingerprint)

-- name: notices_stopped
-- The operations that have stopped by themselves since ?1 and were not announced, except those on tasks of the queue ?2
-- only. ?3 is the limit.
select id, unannounced_at as at
from operations
where unannounced_at > ?1 and filter ->> 'queue' is not ?2
order by id
limit ?3

-- name: notices_stopped_claim
-- Remembers that the operation ?1 was announced, unless another process has announced it meanwhile.
update operations set unannounced_at = null where id = ?1 and unannounced_at is not null

-- name: notices_late
-- Remembers that the queues ?1 are late. A queue that was announced since it was last well is not in the result. ?2 is now.
update queues set late_at = ?2 where name in (select value from json_each(?1)) and late_at is null
returning name, late_at as at

-- name: notices_well
-- Forgets that the queues ?1 were late.
update queues set late_at = null where name in (select value from json_each(?1)) and late_at is not null
