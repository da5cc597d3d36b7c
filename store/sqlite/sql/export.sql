select transfer, origin, target, destination, begun_at, coalesce(finished_at, 0) as finished_at from exports
