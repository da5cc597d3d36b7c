-- name: breakers_lock
-- Waits until no transaction gives permits or changes gates, and returns the time after that.
with locked as materialized (select epoch from holdfast.gate_epoch for no key update)
select clock_timestamp() as now from locked

-- name: breakers
-- The breakers of the targets in the JSON document $1.
select g.id, g.target, g.reason, g.probe_at, g.probe_wait, g.concurrency as probes, g.passed, g.failed, g.rejected,
  exists (select from holdfast.blocked b where b.gate_id = g.id) as blocked
from holdfast.gates g
where g.lifted_at is null and g.kind = 'breaker' and g.target = any(array(select json_array_elements_text($1)))

-- name: breakers_set
-- Stores the state of the breakers in the JSON document $1, and makes their buckets due for a check.
with changed as (
  update holdfast.gates g
  set reason = coalesce(nullif(r.reason, ''), g.reason), probe_at = timestamptz 'epoch' + r.probe_at * interval '1 microsecond', probe_wait = r.probe_wait,
    concurrency = r.probes, passed = r.passed, failed = r.failed, rejected = r.rejected
  from json_to_recordset($1) as r (id bigint, reason text, probe_at bigint, probe_wait bigint, probes int, passed int, failed int, rejected int)
  where g.id = r.id
  returning g.id
)
update holdfast.buckets b set next_at = now() from changed where b.gate_id = changed.id
