-- Those of one state that are over since before ?2.
select id from tasks
where state = ?1 and finished_at < ?2
order by finished_at
limit ?3
