-- ?1 lists [type, queue, payload, max attempts, due time, unique key]. The payload is null if it is long, the due time
-- if the task is due at once, and the unique key if there is none. ?2 is now, and ?3 is the id of the first task. A
-- task is not stored if its key is taken, by a stored task or by an earlier task of the same list.
insert into tasks (id, type, queue, payload, max_attempts, unique_key, created_at, next_run_at, due_at, ticketed_at)
select ?3 + e.key, e.value ->> 0, e.value ->> 1, e.value ->> 2, e.value ->> 3, e.value ->> 5,
  ?2, coalesce(e.value ->> 4, ?2), e.value ->> 4, iif(e.value ->> 4 is null, ?2, null)
from json_each(?1) as e
where true
on conflict (unique_key) where unique_key is not null do nothing
