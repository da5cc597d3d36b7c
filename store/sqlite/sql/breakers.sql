-- The last parameter of each statement is the present time.

-- name: breakers
-- The breakers of the targets in the JSON document ?1.
select g.id, g.target, g.reason, g.probe_at, g.probe_wait, g.concurrency as probes, g.passed, g.failed, g.rejected,
  exists (select 1 from blocked b where b.gate_id = g.id) as blocked
from gates g
where g.lifted_at is null and g.kind = 'breaker' and g.target in (select value from json_each(?1))

-- name: breakers_set
-- Stores the state of the breakers in the JSON document ?1, and makes their buckets due for a check.
update gates
set reason = coalesce(nullif(r.value ->> 'reason', ''), gates.reason), probe_at = r.value ->> 'probe_at', probe_wait = r.value ->> 'probe_wait',
  concurrency = r.value ->> 'probes', passed = r.value ->> 'passed', failed = r.value ->> 'failed',
  rejected = r.value ->> 'rejected'
from json_each(?1) as r
where gates.id = r.value ->> 'id';

update buckets set next_at = ?2 where gate_id in (select value ->> 'id' from json_each(?1))
