-- name: breakers_trip
-- Closes the breakers in the JSON document $1. Times are in microseconds since 1970.
insert into holdfast.gates (kind, target, actor, surface, reason, probe_at, probe_wait, concurrency, closed_at)
select 'breaker', r.target, 'worker', 'worker', r.reason, {{at(r.probe_at)}}, r.probe_wait, r.probes, {{now}}
from {{rows(r, $1, target text, reason text, probe_at bigint, probe_wait bigint, probes int)}}

-- name: breakers_reset
-- Opens the gates of the breakers in the JSON document $1.
update holdfast.gates set lifted_at = {{now}} where id in (select r.id from {{rows(r, $1, id bigint)}})

-- name: executors
-- The number of executors of all live workers.
select coalesce(sum(concurrency), 0)::int as n from holdfast.workers where state = 'live' and not draining
