-- ?1 lists [type, lane, payload or null, max attempts, when it is due later or null, unique key or null], ?2 is now,
-- ?3 the id of the first. Where a key is taken, also by an earlier task of the same list, nothing is stored.
insert into tasks (id, type, lane, payload, max_attempts, unique_key, created_at, next_run_at, due_at, ticketed_at)
select ?3 + e.key, e.value ->> 0, e.value ->> 1, e.value ->> 2, e.value ->> 3, e.value ->> 5,
  ?2, coalesce(e.value ->> 4, ?2), e.value ->> 4, iif(e.value ->> 4 is null, ?2, null)
from json_each(?1) as e
where true
on conflict (unique_key) where unique_key is not null do nothing
