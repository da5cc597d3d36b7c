-- Until the commit no dispatcher marks a task as ticketed. What was marked before is seen by the next statement.
select through from holdfast.ticket_scan for update
