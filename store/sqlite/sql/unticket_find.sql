-- One step: at most ?6 tasks of the queue ?1, in the order of (ticketed_at, id), after (?2, ?3) and ticketed before ?4.
-- If ?5 is 1, only requeued tasks. If ?5 is 0, only other tasks.
select id, ticketed_at as at from tasks
where queue = ?1 and ticketed_at is not null and (ticketed_at, id) > (?2, ?3) and ticketed_at < ?4
  and (?5 is null or requeued = ?5)
order by ticketed_at, id
limit ?6
