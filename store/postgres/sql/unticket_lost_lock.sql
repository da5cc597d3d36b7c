-- Until the commit, no dispatcher can mark a task as ticketed. The next statement sees all earlier marks.
select through from holdfast.ticket_scan for update
