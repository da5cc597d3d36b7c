-- name: token_create
-- ?1 is a name, ?2 a role, ?3 a hash, ?4 the lifetime, 0 if it has no end, and ?5 is now. Returns no row if the name is taken.
insert into tokens (name, role, hash, created_at, expires_at)
values (?1, ?2, ?3, ?5, iif(?4 > 0, ?5 + ?4, null))
on conflict (name) where revoked_at is null do nothing
returning id

-- name: token_revoke
-- ?1 is a name, and ?2 is now.
update tokens set revoked_at = ?2 where name = ?1 and revoked_at is null

-- name: tokens
-- ?1 is now.
select id, name, role, hash, created_at, used_at, expires_at, revoked_at,
  case when revoked_at is not null then 'revoked' when expires_at <= ?1 then 'expired' else 'active' end as state
from tokens
order by id

-- name: token_use
-- ?1 is an id, and ?2 is now. If the time of the last use lies in the future, the clock has been set back.
update tokens set used_at = ?2
where id = ?1 and (used_at is null or used_at < ?2 - 60000000 or used_at > ?2 + 2000000)
