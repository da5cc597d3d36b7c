-- If several workers pass a ticket on, it is recorded at most every ten seconds.
update tasks as t set requeued = 1, ticketed_at = ?2
from json_each(?1) as tickets
where t.id = tickets.value ->> 0 and t.attempt = tickets.value ->> 1 and +t.ticketed_at is not null
  and (not t.requeued or +t.ticketed_at < ?2 - 10000000 or +t.ticketed_at > ?2)
