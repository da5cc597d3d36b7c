-- name: token_create
-- $1 is a name, $2 a role, $3 a hash, and $4 the lifetime, or 0 for no end. Returns no row if the name is in use.
insert into holdfast.tokens (name, role, hash, created_at, expires_at)
values ($1, $2, $3, {{now}}, case when $4::bigint > 0 then {{now}} + {{span($4::bigint)}} end)
on conflict (name) where revoked_at is null do nothing
returning id

-- name: token_revoke
update holdfast.tokens set revoked_at = {{now}} where name = $1 and revoked_at is null

-- name: tokens
select id, name, role, hash, created_at, used_at, expires_at, revoked_at,
  case when revoked_at is not null then 'revoked' when expires_at <= {{now}} then 'expired' else 'active' end as state
from holdfast.tokens
order by id

-- name: token_use
-- Records the time of a use, at most once per minute. If the recorded time is in the future, the clock was set back.
update holdfast.tokens set used_at = {{now}}
where id = $1 and (used_at is null or used_at < {{now}} - {{span(60000000)}} or used_at > {{now}} + {{span(2000000)}})
