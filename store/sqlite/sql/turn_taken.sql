-- If the time of a turn lies in the future, the clock was set back since, and the turn does not count.
select count(*) as n from turns where duty = ?1 and taken_at > ?2 - ?3 and taken_at <= ?2 + 2000000
