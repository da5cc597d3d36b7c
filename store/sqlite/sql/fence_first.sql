-- When the first lease expires. If a lease was renewed after ?1, it is due for correction at once.
select min(iif(renewed_at > ?1 + 2000000, 0, lease_until)) as at from runs where state = 'live' having min(lease_until) is not null
