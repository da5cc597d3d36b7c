-- name: answer_begin
-- ?1 is a scope, ?2 a key, ?3 a hash, ?4 how long an answer is valid, and ?5 is now. Changes no row if there is a valid
-- answer.
insert into answers (scope, key, hash, created_at) values (?1, ?2, ?3, ?5)
on conflict (scope, key) do update set hash = excluded.hash, status = null, body = null, created_at = excluded.created_at
where answers.created_at < ?5 - ?4

-- name: answer
select hash, status, body from answers where scope = ?1 and key = ?2

-- name: answer_end
update answers set status = ?3, body = ?4 where scope = ?1 and key = ?2

-- name: prune_answers
-- Deletes at most ?2 answers that are older than ?1.
delete from answers where rowid in (select rowid from answers where created_at < ?1 order by created_at limit ?2)
