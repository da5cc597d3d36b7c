-- Whether the clock was set back since the newest recorded time.
select exists (select from holdfast.turns where duty = $1 and taken_at > now() + interval '2 seconds') as ahead
