select id, state, settled from holdfast.runs where id = any($1::bigint[])
