insert into turns (duty, taken_at) values (?1, ?2)
on conflict (duty) do update set taken_at = excluded.taken_at
where turns.taken_at <= ?2 - ?3 or turns.taken_at > ?2 + 2000000
