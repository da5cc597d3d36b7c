-- What was staged goes with it.
delete from holdfast.imports where id = $1 and committed_at is null
