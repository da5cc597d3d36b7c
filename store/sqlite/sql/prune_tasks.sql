-- At most ?3 tasks of one state that are over since before ?2. Their attempts and payloads go with them.
delete from tasks where id in (
  select id from tasks where state = ?1 and finished_at < ?2 order by finished_at limit ?3
)
