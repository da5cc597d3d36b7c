select id, renewed_at, pid, process_started as started
from holdfast.workers
where state = 'live' and present and boot_id = $1 and pid_namespace = $2 and process_started is not null
order by id
