-- Once a day the scan starts again with the first task. The list does not contain changes made by hand or by an older
-- build.
update holdfast.ticket_scan set through = 0, resume = 0, begun_at = now()
where begun_at < now() - interval '1 day' or begun_at > now()
