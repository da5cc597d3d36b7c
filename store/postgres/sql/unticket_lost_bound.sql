select coalesce((select max(id) from holdfast.tasks), 0) as bound, through, resume,
  (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint as started
from holdfast.ticket_scan
