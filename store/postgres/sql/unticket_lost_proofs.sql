-- The newest sentinel of a busy lane has always come out just now. So an older one is held until its
-- proof is ripe, and only then replaced by the one that is the newest by that time.
with picked as materialized (
  select name, held_at is null as free,
    case
      when drained_at <= now() - $1 * interval '1 microsecond' then drained_through
      when held_at <= now() - $1 * interval '1 microsecond' then held_through
    end as moment
  from holdfast.lanes
  where drained_at is not null
  order by name
  for update
), held as (
  update holdfast.lanes l set held_through = l.drained_through, held_at = l.drained_at
  from picked p
  where l.name = p.name and (p.free or p.moment is not null) and l.held_at is distinct from l.drained_at
)
select name as lane, moment::text as moment from picked where moment is not null
