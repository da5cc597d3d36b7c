select coalesce((select max(id) from holdfast.tasks), 0) as bound, through, resume from holdfast.ticket_scan
