select id, renewed_at, pid, process_started as started
from holdfast.runs
where state = 'live' and shown and boot_id = $1 and pid_namespace = $2 and process_started is not null
order by id
