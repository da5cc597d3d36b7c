-- The lease that is over first. One that was renewed in the future, seen from ?1, is to be corrected at once.
select min(iif(renewed_at > ?1 + 2000000, 0, lease_until)) as at from runs where state = 'live' having min(lease_until) is not null
