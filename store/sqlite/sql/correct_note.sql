insert into turns (duty, taken_at) values (?2, ?1)
on conflict (duty) do update set taken_at = excluded.taken_at
