-- name: worker_states
select id, state, settled from holdfast.workers where id {{in($1::bigint[])}}
