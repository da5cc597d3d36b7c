-- One that is on record, first those under way.
select id, source, transfer, origin, shift, through, tasks, begun_at, committed_at
from holdfast.imports
order by committed_at is not null, id
limit 1
