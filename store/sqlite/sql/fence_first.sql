-- The lease that is over first.
select min(lease_until) as at from runs where state = 'live' having min(lease_until) is not null
