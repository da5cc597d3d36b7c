-- name: janitors
-- The outbox entries that are older than ?2, and the time since the newest turn, or -1 if there is none. ?1 is the
-- present time.
with old as (
  select created_at from outbox where created_at < ?1 - ?2
)
select count(*) as outbox_entries, coalesce(?1 - min(created_at), 0) as oldest,
  coalesce((select max(?1 - max(taken_at), 0) from turns), -1) as last_turn
from old

-- name: failing_duties
-- ?1 is the present time.
select janitor, duty, error, max(?1 - since, 0) as "for"
from failing_duties
where valid_until > ?1
order by since, janitor, duty
limit 100
