select id, name, host, pid, version, concurrency, lanes, types, state, draining,
  started_at, renewed_at, lease_until, ended_at, taken, settled, running
from runs
where ?1 or state = 'live'
order by id desc
