-- name: counts_fold
-- Adds at most $1 deltas to the numbers. All callers lock the groups in the same order, so that they do not deadlock.
-- No statement updates a delta, and this statement does not see deltas that are inserted later. So it needs no lock to
-- find the deltas that it deletes.
with deleted as (
  delete from holdfast.count_deltas where ctid = any (array(select ctid from holdfast.count_deltas limit $1))
  returning queue, type, state, block, n
), folded as (
  insert into holdfast.counts (queue, type, state, block, n)
  select queue, type, state, block, sum(n) from deleted group by 1, 2, 3, 4 order by 4, 1, 2, 3
  on conflict (block, queue, type, state) do update set n = counts.n + excluded.n
)
select count(*) as n from deleted

-- name: count_groups
-- The tasks by queue, type and state. All numbers are from one snapshot, except those of running tasks in a large
-- store; see running_ids.
with {{recorded}}, {{running_ids}}, held as materialized (
  select t.queue, t.type, count(*) as n
  from {{running_by_id}}
  where r.live or t.state = 'running'
  group by 1, 2
), open as (
  select queue, type, total - ended as n,
    greatest(least(coalesce((select sum(h.n) from held h where h.queue = r.queue and h.type = r.type), 0), total - ended), 0) as running
  from (
    select queue, type, coalesce(sum(n) filter (where state = 'all'), 0) as total, coalesce(sum(n) filter (where state <> 'all'), 0) as ended
    from recorded group by 1, 2
  ) r
), groups as (
  select queue, type, state, n from recorded where state <> 'all'
  union all
  select queue, type, 'running', running from open
  union all
  select queue, type, 'ready', n - running from open
)
select queue, type, state, n::bigint as count
from groups
where n > 0

-- name: recount
-- The differences between the tasks of a block and the stored numbers, both from one snapshot. The block is the first
-- one from resume on that has tasks or numbers. Each group of the block has a row, even without a difference. If there
-- is no such block, there is no row.
with scan as materialized (
  select step, resume from holdfast.count_scan
), block as materialized (
  select least(
    (select min(id) / {{block}} from holdfast.tasks where id >= (select resume from scan) * {{block}}),
    (select min(block) from holdfast.counts where block >= (select resume from scan)),
    (select min(block) from holdfast.count_deltas where block >= (select resume from scan))
  ) as block
), found as (
  select queue, type, state, count(*) as n from holdfast.tasks
  where id >= (select block from block) * {{block}} and id < ((select block from block) + 1) * {{block}}
  group by 1, 2, 3
), numbers as (
  select queue, type, state, n from found where state not in ('ready', 'running')
  union all
  select queue, type, 'all', n from found
  union all
  select queue, type, state, -n from holdfast.counts where block = (select block from block)
  union all
  select queue, type, state, -n from holdfast.count_deltas where block = (select block from block)
), compared as (
  select queue, type, state, sum(n)::bigint as n from numbers group by 1, 2, 3
)
select s.step, coalesce(b.block, -1) as block, coalesce(c.queue, '') as queue, coalesce(c.type, '') as type, coalesce(c.state, '') as state,
  coalesce(c.n, 0) as n
from scan s cross join block b left join compared c on c.n <> 0

-- name: recount_settle
-- Ends the step $1: adds the differences of the block $2, a JSON array, and moves to the next block. A block of -1 ends
-- the pass. If another step has ended since the read, it may have stored the same differences, so the statement does
-- nothing.
with moved as (
  update holdfast.count_scan
  set step = step + 1, resume = $2::bigint + 1
  where step = $1
  returning step
), cleared as (
  delete from holdfast.counts where n = 0 and block = $2::bigint and exists (select from moved)
)
insert into holdfast.count_deltas (queue, type, state, block, n)
select d.queue, d.type, d.state, $2::bigint, d.n
from json_to_recordset($3::json) as d (queue text, type text, state text, n bigint)
where exists (select from moved)
