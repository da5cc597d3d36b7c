-- name: gates
-- The closed gates except limits. $1 is the maximum number of blocked tasks to count for each gate.
select {{gate}},
  (select count(*) from (select 1 from holdfast.blocked b where b.gate_id = g.id limit $1) counted) as blocked
from holdfast.gates g
where g.lifted_at is null and (g.until is null or g.until > {{now}}) and g.kind not like 'limit%'
order by g.id

-- name: gate_get
-- The closed gate of the kind $1 for the subject $2 to $5.
select {{gate}}, 0 as blocked
from holdfast.gates g
where g.lifted_at is null and (g.until is null or g.until > {{now}})
  and g.kind = $1 and g.queue = $2 and g.type = $3 and g.key = $4 and g.target = $5

-- name: gate_by_id
-- The closed pause or breaker with the id $1.
select {{gate}}, 0 as blocked
from holdfast.gates g
where g.lifted_at is null and (g.until is null or g.until > {{now}}) and g.kind not like 'limit%' and g.id = $1

-- name: gate_close
-- Closes the gate of the kind $1 for the subject $2 to $5, for $9 microseconds or, if $9 is 0, until a person resumes
-- it. If the gate is already closed, the statement replaces its reason. It also replaces its end, unless $9 is
-- negative.
insert into holdfast.gates as g (kind, queue, type, key, target, actor, surface, reason, until, closed_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, case when $9::bigint > 0 then {{now}} + {{span($9::bigint)}} end, {{now}})
on conflict (kind, queue, type, key, target) where lifted_at is null
do update set actor = excluded.actor, surface = excluded.surface, reason = excluded.reason,
  until = case when $9::bigint < 0 then g.until else excluded.until end
returning {{stored_gate}}, 0 as blocked

-- name: gate_lift
-- Opens the gate $1.
update holdfast.gates set lifted_at = {{now}} where id = $1

-- name: gates_expired
-- At most $2 gates whose time has passed, or that are breakers without use for $1 microseconds.
select id from (
  select g.id from holdfast.gates g where g.lifted_at is null and g.until <= {{now}}
  union all
  select g.id from holdfast.gates g where g.lifted_at is null and {{forgotten}}
) as found
limit $2

-- name: gates_expire
-- Opens those of the gates $2 that gates_expired would return.
update holdfast.gates as g set lifted_at = {{now}}
where g.id {{in($2::bigint[])}} and g.lifted_at is null and (g.until <= {{now}} or {{forgotten}})
returning {{stored_gate}}, 0 as blocked

-- name: pause_expire
-- Opens the pause of the subject $1 to $4 if its time has passed.
update holdfast.gates set lifted_at = {{now}}
where lifted_at is null and until <= {{now}} and kind = 'pause' and queue = $1 and type = $2 and key = $3 and target = $4
returning {{stored_gate}}, 0 as blocked
