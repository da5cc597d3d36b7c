-- The next task of the lanes to become due, apart from those just given. After some were given, one that was due when this transaction
-- began is in somebody else's hands, or was stored a moment ago.
select due_at <= now() as due, (extract(epoch from due_at - clock_timestamp()) * 1000000)::bigint as wait
from holdfast.tasks
where due_at is not null and id <> all($1::bigint[]) and ($2::text = '' or lane = $2) and lane <> all($3::text[])
order by due_at
limit 1
