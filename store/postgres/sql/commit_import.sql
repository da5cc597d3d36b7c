update holdfast.imports set committed_at = now(), tasks = $2 where id = $1
