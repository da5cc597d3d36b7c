-- One step: those of the lane ticketed after (?2, ?3) and before ?4, but only before ?5 if they are Again.
-- Those went to the other queue of the lane, of which the sentinel proves nothing. It is short.
select id, ticketed_at as at from tasks
where lane = ?1 and ticketed_at is not null and (ticketed_at, id) > (?2, ?3) and ticketed_at < ?4
  and (not again or ticketed_at < ?5)
order by ticketed_at, id
limit ?6
