-- A ticket that several workers pass on is recorded at most every ten seconds.
update tasks as t set again = 1, ticketed_at = ?2
from json_each(?1) as asked
where t.id = asked.value ->> 0 and t.attempt = asked.value ->> 1 and +t.ticketed_at is not null
  and (not t.again or +t.ticketed_at < ?2 - 10000000 or +t.ticketed_at > ?2)
