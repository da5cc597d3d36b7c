update holdfast.lanes
set drained_through = greatest(drained_through, least($2::timestamptz, now()))
where name = $1
