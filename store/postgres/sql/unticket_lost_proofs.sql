-- The time through which each queue is proved to be drained. A sentinel becomes a proof when another sentinel, sent at
-- least $1 microseconds after the first one came out, has come out too. In a busy queue the newest sentinel has always
-- come out just now. So the statement keeps an older sentinel, and replaces it only when it has become a proof.
with picked as materialized (
  select name, held_at is null as free, proved_through,
    case when drained_through >= held_at + $1 * interval '1 microsecond' then held_through end as moment
  from holdfast.queues
  where drained_at is not null
  order by name
  for update
), held as (
  update holdfast.queues q set held_through = q.drained_through, held_at = q.drained_at,
    proved_through = coalesce(p.moment, q.proved_through)
  from picked p
  where q.name = p.name and (p.free or p.moment is not null)
    and (q.held_at is distinct from q.drained_at or q.proved_through is distinct from p.moment)
)
select name as queue, coalesce(moment, proved_through)::text as moment from picked
where coalesce(moment, proved_through) is not null
