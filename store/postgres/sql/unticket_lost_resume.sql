update holdfast.ticket_scan set resume = $1 where resume <> $1
