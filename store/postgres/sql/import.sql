select id, source, transfer, origin, shift, through, tasks, begun_at, committed_at from holdfast.imports where transfer = $1
