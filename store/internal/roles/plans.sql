-- name: plan_create
-- Stores nothing if a plan of the kind has the name and has not ended.
insert into holdfast.plans (kind, name, state, next_at, spec, progress, actor, surface, reason, created_at)
values ($1, $2, $3, nullif({{at($4)}}, {{epoch}}), $5::json, $6::json, $7, $8, $9, {{now}})
on conflict (kind, name) where ended_at is null do nothing
returning {{plan}}

-- name: plan
select {{plan}} from holdfast.plans where kind = $1 and name = $2 and ended_at is null

-- name: plans
-- At most $5 plans of the kind $1 that have not ended and have names above $3.
select {{plan}} from holdfast.plans
where kind = $1 and {{plans_in_states}} and {{plans_with_ids}} and name > $3 and ended_at is null
order by name
limit $5

-- name: plans_all
-- At most $5 plans of the kind $1, or of all kinds, with ids below $3 if that is not 0.
select {{plan}} from holdfast.plans
where ($1 = '' or kind = $1) and {{plans_in_states}} and {{plans_with_ids}} and ($3::bigint = 0 or id < $3)
order by id desc
limit $5

-- name: plan_bounds
-- The lowest and the highest id of the members of the plan $1; 0 if it has none.
select coalesce(first_task, 0) as first, coalesce(last_task, 0) as last from holdfast.plans where id = $1

-- name: plan_tally
-- The numbers of the tasks with ids in the ranges $1, a JSON array, by chunk and state; only of members of the plan of
-- the range, if it has one. The left join makes the engine look up each range. A chunk without tasks has a row without a
-- state.
select r.chunk, coalesce(t.state, '') as state, count(t.id) as count, min(t.next_run_at) as next_run_at
from {{rows(r, $1::json, chunk bigint, plan bigint, first bigint, last bigint)}}
left join holdfast.tasks t on t.id >= r.first and t.id <= r.last and (r.plan = 0 or t.plan = r.plan)
group by r.chunk, t.state

-- name: plans_due
-- At most $2 plans of the kinds $1 that are due in $3 microseconds. A spec with more than $4 stored bytes is not read.
select {{plan_without_spec}}, case when {{size(spec)}} <= $4::bigint then spec::text else '' end as spec from holdfast.plans
where next_at <= {{now}} + {{span($3::bigint)}} and kind {{in($1::text[])}}
order by next_at
limit $2

-- name: plan_lock
-- The plan $1, if it has the version $2. Until this transaction ends, no other step can take that version.
select id from holdfast.plans where id = $1 and version = $2 {{lock}}

-- name: plan_hold
-- The plan $1 in any version, and the time. Until this transaction ends, no step can change the plan.
select {{plan}}, {{now}} as now from holdfast.plans where id = $1 {{lock}}

-- name: plan_step
-- $5 is null if the spec stays; then PostgreSQL does not write a large one again. $7 and $8 are the lowest and the highest
-- id of new members of the plan, or 0 if there are none.
update holdfast.plans set
  version = version + 1, state = $3, next_at = nullif({{at($4)}}, {{epoch}}), spec = coalesce($5::json, spec), progress = $6::json,
  ended_at = case when $3 in ('done', 'cancelled', 'deleted') then {{now}} end, failures = 0, failure = null,
  first_task = case when $7::bigint = 0 then first_task else least(first_task, $7) end,
  last_task = case when $7 = 0 then last_task else greatest(last_task, $8::bigint) end
where id = $1 and version = $2
returning {{plan_without_spec}}

-- name: plans_fail
-- Postpones the plans in the JSON array $1, whose steps have failed. It leaves out those that have changed since.
with locked as (
  select p.id, r.failure, r.pause
  from {{rows(r, $1::json, id bigint, version bigint, failures int, failure text, pause bigint)}}
  join holdfast.plans p on p.id = r.id and p.version = r.version and p.failures = r.failures
  where p.next_at is not null and p.ended_at is null
  order by p.id {{lock(of p skip locked)}}
)
update holdfast.plans as p set failures = p.failures + 1, failure = l.failure, next_at = {{now}} + {{span(l.pause)}}
from locked l where p.id = l.id

-- name: plans_postpone
-- Postpones the plans in the JSON array $1 that still have their versions by $2 microseconds from now.
with locked as (
  select p.id
  from {{rows(r, $1::json, id bigint, version bigint)}}
  join holdfast.plans p on p.id = r.id and p.version = r.version
  where p.next_at is not null and p.ended_at is null
  order by p.id {{lock(of p skip locked)}}
)
update holdfast.plans set next_at = {{now}} + {{span($2::bigint)}} where id in (select id from locked) returning id

-- name: plan_fence
-- The task $1, if its attempt $2 runs on the worker $3. Until this transaction ends, no janitor can take the task back.
select id from holdfast.tasks where id = $1 and attempt = $2 and worker_id = $3 and state = 'running' {{lock}}

-- name: plan_items
-- At most $4 items of the plan $1 in the state $2, or in any if it is empty, with names above $3.
select {{plan_item}} from holdfast.plan_items where plan_id = $1 and ($2 = '' or state = $2) and item > $3 order by item limit $4

-- name: plan_items_due
-- At most $3 items of the plan $1 in the state $2 that are due in $4 microseconds.
select {{plan_item}} from holdfast.plan_items
where plan_id = $1 and state = $2 and next_at <= {{now}} + {{span($4::bigint)}}
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
-- $1 is the maximum number of items.
update holdfast.plan_items set next_at = {{now}}
where (plan_id, item) in (select plan_id, item from holdfast.plan_items where next_at > {{now}} + {{span(2000000)}} limit $1)

-- name: correct_plans
-- Makes at most $1 plans due for a check, because their times were computed before the clock was set back. A check
-- without due work only computes the time again.
update holdfast.plans set next_at = {{now}}
where id in (select id from holdfast.plans where next_at > {{now}} + {{span(2000000)}} limit $1)

-- name: prune_plan_items
-- Deletes at most $2 items of plans that ended more than $1 microseconds ago. A plan can have millions of them. With the
-- pairs alone, SQLite would read all items of the plans.
with page as (
  select i.plan_id, i.item from holdfast.plans p join holdfast.plan_items i on i.plan_id = p.id
  where p.ended_at < {{now}} - {{span($1::bigint)}} limit $2
)
delete from holdfast.plan_items
where plan_id in (select plan_id from page) and item in (select item from page) and (plan_id, item) in (select plan_id, item from page)

-- name: prune_plans
-- Deletes at most $2 plans without items that ended more than $1 microseconds ago. The subquery looks up an item of each
-- plan; a join would read all items that have just been deleted.
delete from holdfast.plans where id in (
  select id from holdfast.plans p
  where ended_at < {{now}} - {{span($1::bigint)}} and (select 1 from holdfast.plan_items i where i.plan_id = p.id order by i.item limit 1) is null
  order by ended_at limit $2
)
