-- Once a day the look begins with the first task again: a change by hand, or by an older build, is in no list.
update holdfast.ticket_scan set through = 0, resume = 0, begun_at = now()
where begun_at < now() - interval '1 day' or begun_at > now()
