-- If the time of a turn lies in the future, the clock has been set back, and the turn does not count.
insert into holdfast.turns (duty) values ($1)
on conflict (duty) do update set taken_at = now()
where turns.taken_at <= now() - $2 * interval '1 microsecond'
  or turns.taken_at > now() + interval '2 seconds'
