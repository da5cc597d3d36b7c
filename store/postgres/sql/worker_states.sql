select id, state, settled from holdfast.workers where id = any($1::bigint[])
