select id, name, host, pid, version, concurrency, to_json(lanes)::text as lanes, to_json(types)::text as types, state, draining,
  started_at, renewed_at, lease_until, ended_at, taken, settled, running
from holdfast.runs
where $1 or state = 'live'
order by id desc
