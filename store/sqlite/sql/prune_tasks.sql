-- Deletes at most ?3 tasks that ended before ?2 in the state ?1. Their attempts and payloads are deleted with them.
delete from tasks where id in (
  select id from tasks where state = ?1 and finished_at < ?2 order by finished_at limit ?3
)
