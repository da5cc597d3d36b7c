-- They own nothing, and being over they never will again.
update holdfast.runs set swept = true where id = any($1::bigint[]) and state <> 'live'
