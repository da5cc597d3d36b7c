-- One step: tasks of the lane that were ticketed after (?2, ?3) and before ?4. If ?5 is not null, only those that are
-- Again, if it is 1, or are not, if it is 0.
select id, ticketed_at as at from tasks
where lane = ?1 and ticketed_at is not null and (ticketed_at, id) > (?2, ?3) and ticketed_at < ?4
  and (?5 is null or again = ?5)
order by ticketed_at, id
limit ?6
