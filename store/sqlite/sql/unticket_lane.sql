-- One step: those ticketed after (?2, ?3), through ?4.
select id, ticketed_at as at from tasks
where lane = ?1 and ticketed_at is not null and (ticketed_at, id) > (?2, ?3) and ticketed_at <= ?4
order by ticketed_at, id
limit ?5
