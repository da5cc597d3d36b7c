-- What is proved of each lane. A sentinel is a proof when another one that was sent at least $1 microseconds after it had
-- come out has come out too. The newest sentinel of a busy lane has always come out just now. So an older one is held, and
-- only replaced when it has become a proof.
with picked as materialized (
  select name, held_at is null as free, proved_through,
    case when drained_through >= held_at + $1 * interval '1 microsecond' then held_through end as moment
  from holdfast.lanes
  where drained_at is not null
  order by name
  for update
), held as (
  update holdfast.lanes l set held_through = l.drained_through, held_at = l.drained_at,
    proved_through = coalesce(p.moment, l.proved_through)
  from picked p
  where l.name = p.name and (p.free or p.moment is not null)
    and (l.held_at is distinct from l.drained_at or l.proved_through is distinct from p.moment)
)
select name as lane, coalesce(moment, proved_through)::text as moment from picked
where coalesce(moment, proved_through) is not null
