-- At most $4 listed blocks, from block $1 on and up to the id $2, and the block of the first id above $6 and up to $3.
-- A block has $5 ids.
(
  select block, false as above from holdfast.ticketed_blocks
  where block >= $1 and block <= ($2::bigint - 1) / $5::bigint
  order by block
  limit $4
)
union all
(
  select (id - 1) / $5::bigint, true from holdfast.tasks
  where id > $6 and id <= $3
  order by id
  limit 1
)
order by above, block
