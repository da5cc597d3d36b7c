-- The time at which the first lease expires. A lease that was renewed after ?1, which is now, has to be corrected at
-- once.
select min(iif(renewed_at > ?1 + 2000000, 0, lease_until)) as at from workers where state = 'live' having min(lease_until) is not null
