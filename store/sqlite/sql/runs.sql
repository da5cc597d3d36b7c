select id, name, host, pid, version, concurrency, lanes, state, draining,
  started_at, renewed_at, lease_until, coalesce(ended_at, 0) as ended_at, taken, settled, running
from runs
where ?1 or state = 'live'
order by id desc
