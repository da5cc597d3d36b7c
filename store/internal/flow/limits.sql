-- name: limit_set
-- Sets the limit of the kind $1 for the subject $2 to $5.
insert into holdfast.gates as g (
  kind, queue, type, key, target, actor, surface, reason, rate_count, rate_per, concurrency, closed_at
)
values ($1, $2, $3, $4, $5, $6, $7, $8, nullif($9::int, 0), nullif($10::bigint, 0), nullif($11::int, 0), {{now}})
on conflict (kind, queue, type, key, target) where lifted_at is null
do update set actor = excluded.actor, surface = excluded.surface, reason = excluded.reason, closed_at = {{now}},
  rate_count = excluded.rate_count, rate_per = excluded.rate_per, concurrency = excluded.concurrency
returning {{stored_gate}}, {{stored_limit}}

-- name: limit_changed
-- Makes at most $2 buckets of the limit $1 due for a check.
update holdfast.buckets set next_at = {{now}}
where (gate_id, bucket) in (select gate_id, bucket from holdfast.buckets where gate_id = $1 and next_at > {{now}} limit $2)

-- name: limits
-- The limits and their use. $1 is the maximum number of blocked tasks to count for each limit.
select {{gate}}, {{limit}},
  (select count(*) from (select 1 from holdfast.blocked b where b.gate_id = g.id limit $1) counted) as blocked,
  (select count(*) from holdfast.permits permit where permit.gate_id = g.id and {{permit_used}}) as in_use
from holdfast.gates g
where g.lifted_at is null and g.kind like 'limit%'
order by g.id

-- name: limit_get
-- The limit of the kind $1 for the subject $2 to $5.
select {{gate}}, {{limit}}
from holdfast.gates g
where g.lifted_at is null and g.kind = $1 and g.queue = $2 and g.type = $3 and g.key = $4 and g.target = $5

-- name: limit_by_id
-- The limit with the id $1.
select {{gate}}, {{limit}}
from holdfast.gates g
where g.lifted_at is null and g.kind like 'limit%' and g.id = $1
