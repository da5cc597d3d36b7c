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
  ended_at = case when $3 in ('done', 'cancelled', 'deleted') then {{now}} end
where id = $1 and version = $2
returning {{plan}}

-- name: plan_fence
-- The task $1, if its attempt $2 runs on the worker $3. Until this transaction ends, no janitor can take the task back.
select id from holdfast.tasks where id = $1 and attempt = $2 and worker_id = $3 and state = 'running' {{lock}}

-- name: plan_items
-- At most $4 items of the plan $1 in the state $2 with names above $3.
select {{plan_item}} from holdfast.plan_items where plan_id = $1 and state = $2 and item > $3 order by item limit $4

-- name: plan_items_due
select {{plan_item}} from holdfast.plan_items
where plan_id = $1 and state = $2 and next_at <= {{now}}
order by next_at
limit $3

-- name: plan_items_put
-- Stores the items $2 of the plan $1, a JSON array.
insert into holdfast.plan_items (plan_id, item, state, next_at, data)
select $1, r.item, r.state, nullif({{at(r.next_at)}}, {{epoch}}), r.data::json
from {{rows(r, $2::json, item text, state text, next_at bigint, data text)}}
where true
on conflict (plan_id, item) do update set state = excluded.state, next_at = excluded.next_at, data = excluded.data

-- name: plan_items_drop
delete from holdfast.plan_items where plan_id = $1 and item {{in($2::text[])}}

-- name: correct_plan_items
update holdfast.plan_items set next_at = {{now}} where next_at > {{now}} + {{span(2000000)}}

-- name: correct_plans
-- Makes plans due for a check, because their times were computed before the clock was set back. A check without due
-- work only computes the time again.
update holdfast.plans set next_at = {{now}} where next_at > {{now}} + {{span(2000000)}}

-- name: prune_plans
-- Deletes at most $2 plans that ended more than $1 microseconds ago.
delete from holdfast.plans where id in (
  select id from holdfast.plans where ended_at < {{now}} - {{span($1::bigint)}} order by ended_at limit $2
)
