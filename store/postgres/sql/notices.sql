-- name: notices_due
-- The groups of $1 that no process has announced since they were last resolved. The statement counts the deaths of a
-- group after that time and after $2, except those in the queue $3, up to $5. A group must have at least $4 such
-- deaths. $6 is whether to announce new groups, $7 whether to announce resolved ones, and $8 the limit.
select g.fingerprint, coalesce(k.version, 1) as version, c.tasks
from unnest($1::text[]) as g (fingerprint)
  left join holdfast.dead_groups k on k.fingerprint = g.fingerprint
  cross join lateral (
    select count(*) as tasks
    from (
      select from holdfast.deaths d
      where d.fingerprint = g.fingerprint and split_part(d.queue, '.', 1) <> $3
        and d.died_at > greatest(k.resolved_at, timestamptz 'epoch' + $2::bigint * interval '1 microsecond')
      limit $5
    ) d
  ) c
where not coalesce(k.announced, false) and case when k.resolved_at is null then $6::bool else $7::bool end and c.tasks >= $4
order by g.fingerprint
limit $8
