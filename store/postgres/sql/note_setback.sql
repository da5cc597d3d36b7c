insert into holdfast.meta (key, value) values ('setback', now()::text)
on conflict (key) do update set value = excluded.value
