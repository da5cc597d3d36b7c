-- Steps of one transfer happen one after the other.
select id, source, transfer, origin, shift, through, tasks, begun_at, committed_at
from holdfast.imports
where transfer = $1
for update
