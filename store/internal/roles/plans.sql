-- name: plan_create
-- Stores nothing if a plan of the kind has the name and has not ended.
insert into holdfast.plans (kind, name, state, next_at, spec, progress, actor, surface, reason, created_at)
values ($1, $2, $3, nullif({{at($4)}}, {{epoch}}), $5::json, $6::json, $7, $8, $9, {{now}})
on conflict (kind, name) where ended_at is null do nothing
returning {{plan}}

-- name: plan
select {{plan}} from holdfast.plans where kind = $1 and name = $2 and ended_at is null

-- name: plans
-- At most $3 plans of the kind $1 with names above $2.
select {{plan}} from holdfast.plans where kind = $1 and name > $2 and ended_at is null order by name limit $3

-- name: plans_due
-- At most $2 plans of the kinds $1 that are due in $3 microseconds.
select {{plan}} from holdfast.plans
where next_at <= {{now}} + {{span($3::bigint)}} and kind {{in($1::text[])}}
order by next_at
limit $2

-- name: plan_lock
-- The plan $1, if it has the version $2. Until this transaction ends, no other step can take that version.
select id from holdfast.plans where id = $1 and version = $2 {{lock}}

-- name: plan_step
update holdfast.plans set
  version = version + 1, state = $3, next_at = nullif({{at($4)}}, {{epoch}}), spec = $5::json, progress = $6::json,
  ended_at = case when $3 in ('done', 'deleted') then {{now}} end
where id = $1 and version = $2
returning {{plan}}

-- name: correct_plans
-- Makes plans due for a check, because their times were computed before the clock was set back. A check without due
-- work only computes the time again.
update holdfast.plans set next_at = {{now}} where next_at > {{now}} + {{span(2000000)}}

-- name: prune_plans
-- Deletes at most $2 plans that ended more than $1 microseconds ago.
delete from holdfast.plans where id in (
  select id from holdfast.plans where ended_at < {{now}} - {{span($1::bigint)}} order by ended_at limit $2
)
