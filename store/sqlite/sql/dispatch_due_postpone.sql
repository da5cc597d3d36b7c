-- Else the oldest ones, of a queue that takes nothing, would be all that is ever tried. When the
-- task may run stays the same: its ticket may have arrived all the same.
update tasks as t set due_at = ?2 + 3000000
from json_each(?1) as given
where t.id = given.value ->> 0 and t.attempt = given.value ->> 1 and +t.due_at = given.value ->> 2
