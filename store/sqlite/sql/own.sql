-- name: own
-- Ends all workers of the previous owner, and makes every turn available. ?1 is now.
update workers set state = 'dead', ended_at = ?1 where state = 'live';

delete from turns
