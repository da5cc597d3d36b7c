-- name: add_counts
-- ?1 lists [queue, type, state, id, number].
insert into counts (queue, type, state, block, n)
select value ->> 0, value ->> 1, value ->> 2, (value ->> 3) / {{block}}, value ->> 4 from json_each(?1) where true
{{adding}}

-- name: add_count
-- The variant of add_counts for one number.
insert into counts (queue, type, state, block, n) values (?1, ?2, ?3, ?4 / {{block}}, ?5)
{{adding}}

-- name: apply_count
-- Counts a transition to the state ?5, before the statement apply.
insert into counts (queue, type, state, block, n)
select t.queue, t.type, ?5, t.id / {{block}}, 1 from tasks t where {{apply_unchanged}} and ?5 <> 'ready'
union all
select t.queue, t.type, t.state, t.id / {{block}}, -1 from tasks t where {{apply_unchanged}} and t.state not in ('ready', 'running')
{{adding}}

-- name: count_groups
-- The tasks by queue, type and state.
with recorded as materialized (
  select queue, type, state, sum(n) as n from counts group by queue, type, state
), held as materialized (
  select queue, type, count(*) as n from tasks indexed by tasks_worker where worker_id is not null group by queue, type
), open as (
  select queue, type, sum(iif(state = 'all', n, -n)) as n,
    coalesce((select h.n from held h where h.queue = r.queue and h.type = r.type), 0) as running
  from recorded r
  group by queue, type
), groups as (
  select queue, type, state, n from recorded where state <> 'all'
  union all
  select queue, type, 'running', running from open
  union all
  select queue, type, 'ready', n - running from open
)
select queue, type, state, n as count from groups where n > 0

-- name: recount
-- The differences between the tasks of a block and the stored numbers. The block is the first one from resume on that
-- has tasks or numbers, and -1 if there is none. A row without a group has no difference.
with block as materialized (
  select coalesce(min(block), -1) as block
  from (
    select (select min(id) / {{block}} from tasks where id >= (select resume * {{block}} from count_scan)) as block
    union all
    select (select min(block) from counts where block >= (select resume from count_scan))
  )
), numbers as (
  select queue, type, state, 1 as n from tasks not indexed
  where id >= (select block * {{block}} from block) and id < (select (block + 1) * {{block}} from block) and state not in ('ready', 'running')
  union all
  select queue, type, 'all', 1 from tasks not indexed
  where id >= (select block * {{block}} from block) and id < (select (block + 1) * {{block}} from block)
  union all
  select queue, type, state, -n from counts where block = (select block from block)
), compared as (
  select queue, type, state, sum(n) as n from numbers group by queue, type, state
)
select s.step, b.block, coalesce(c.queue, '') as queue, coalesce(c.type, '') as type, coalesce(c.state, '') as state, coalesce(c.n, 0) as n
from count_scan s cross join block b left join compared c on c.n <> 0

-- name: recount_settle
-- Ends the step ?1: adds the differences of the block ?2, a JSON array, and moves to the next block. A block of -1 ends
-- the pass. If another step has ended since the read, it may have stored the same differences, so the statements do
-- nothing.
insert into counts (queue, type, state, block, n)
select value ->> 'queue', value ->> 'type', value ->> 'state', ?2, value ->> 'n'
from json_each(?3)
where (select step from count_scan) = ?1
{{adding}};

delete from counts where n = 0 and block = ?2;

update count_scan set step = step + 1, resume = ?2 + 1 where step = ?1
