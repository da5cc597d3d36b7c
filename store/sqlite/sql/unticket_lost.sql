-- One step: those of the lane ticketed after (?2, ?3) and before ?4 that are Again, if ?5 is 1, or are not, if it is 0.
select id, ticketed_at as at from tasks
where lane = ?1 and ticketed_at is not null and (ticketed_at, id) > (?2, ?3) and ticketed_at < ?4
  and again = ?5
order by ticketed_at, id
limit ?6
