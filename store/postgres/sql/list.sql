select {{columns}}
from holdfast.tasks t
where (cardinality($1::text[]) = 0 or t.state = any($1::text[]))
  -- Dead letters have an index; the others are found from the newest task down.
  and ($1::text[] <> '{dead}' or t.dead_at is not null)
  and ($2 = '' or t.type = $2)
  and ($3 = '' or t.lane = $3)
  and ($4 = '' or position(lower($4) in lower(t.last_error)) > 0)
  and ($5::bigint = 0 or t.id < $5)
order by t.id desc
limit $6
