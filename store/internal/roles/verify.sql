-- name: verify_all_range
-- The ids of the next step, which begins after the id $1. last is 0 at the end.
select coalesce(min(id) - 1, 0) as after, coalesce(min(id) - 1 + 20000, 0) as last from holdfast.tasks where id > $1

-- name: verify_store
insert into holdfast.verify_results (part, findings, resume, checked_at)
values ($1, $2::json, $3, case when $4::int = 0 then {{now}} end)
on conflict (part) do update
set resume = excluded.resume, checked_at = coalesce(excluded.checked_at, verify_results.checked_at),
  findings = case when $4::int = 0 then excluded.findings else verify_results.findings end
