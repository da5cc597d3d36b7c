-- name: figures_add
-- Adds the flows of the JSON document $1 to those of the present minute.
insert into holdfast.figures (queue, figure, minute, n)
select r.queue, r.figure, {{minute}}, r.n from {{rows(r, $1::json, queue text, figure text, n bigint)}} where true
on conflict (queue, figure, minute) do update set n = figures.n + excluded.n

-- name: figures_set
-- Stores the levels of the JSON document $1, unless the present minute has them.
insert into holdfast.figures (queue, figure, minute, n)
select r.queue, r.figure, {{minute}}, r.n from {{rows(r, $1::json, queue text, figure text, n bigint)}} where true
on conflict (queue, figure, minute) do nothing

-- name: figures
-- The figures of the queue $1 with a kind of $4, in the last $2 microseconds, by steps of $3 microseconds.
select figure, {{micros(minute)}} / $3::bigint * $3::bigint as at, cast(sum(n) as bigint) as total, max(n) as highest, count(*) as minutes
from holdfast.figures
where queue = $1 and figure {{in($4::text[])}} and minute >= {{at(({{micros({{now}})}} - $2::bigint) / $3::bigint * $3::bigint)}}
group by figure, at

-- name: figures_prune
-- Deletes at most $1 figures that are older than $2 microseconds and have a kind of $3. known finds the queues by one
-- search of the primary key for each. SQLite keeps the order of a cross join, so it searches the key for each kind.
with recursive known (queue) as (
  select min(queue) from holdfast.figures
  union all
  select (select min(f.queue) from holdfast.figures f where f.queue > k.queue) from known k where k.queue is not null
)
delete from holdfast.figures where (queue, figure, minute) in (
  select f.queue, f.figure, f.minute
  from known k cross join {{list(l.figure, $3::text[])}} cross join holdfast.figures f
  where f.queue = k.queue and f.figure = l.figure and f.minute < {{now}} - {{span($2)}}
  limit $1
)
