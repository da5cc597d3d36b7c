-- name: notices_due
-- The groups of ?1 that no process has announced since they were last resolved. The statement counts the deaths of a
-- group after that time and after ?2, except those in the queue ?3, up to ?5. A group must have at least ?4 such
-- deaths. ?6 is whether to announce new groups, ?7 whether to announce resolved ones, and ?8 the limit.
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
