-- name: own
-- Ends all workers of the previous owner, and makes every turn available. ?1 is the present time.
update workers set state = 'dead', ended_at = ?1 where state = 'live';

delete from turns
