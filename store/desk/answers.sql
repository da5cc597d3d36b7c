-- name: answer_begin
-- $1 is a scope, $2 a key, $3 a hash, and $4 the time for which an answer is valid. If there is a valid answer, the
-- statement changes no row.
insert into holdfast.answers (scope, key, hash, created_at) values ($1, $2, $3, {{now}})
on conflict (scope, key) do update set hash = excluded.hash, status = null, body = null, created_at = {{now}}
where answers.created_at < {{now}} - {{span($4)}}

-- name: answer
select hash, status, body from holdfast.answers where scope = $1 and key = $2

-- name: answer_end
update holdfast.answers set status = $3, body = $4 where scope = $1 and key = $2
