insert into holdfast.turns (duty) values ($1)
on conflict (duty) do update set taken_at = now()
