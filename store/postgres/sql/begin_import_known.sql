-- The import of a transfer, or of a source; the second is for an answer to those who know only that. Whoever
-- commits it has locked it: what is read here is what became of it.
select id, source, transfer, origin, shift, through, tasks, begun_at, committed_at
from holdfast.imports
where transfer = $1 or source = $2
order by transfer = $1 desc
limit 1
for update
