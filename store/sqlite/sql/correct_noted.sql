-- Whether the clock was set back since the newest recorded time.
select count(*) as n from turns where duty = ?2 and taken_at > ?1 + 2000000
