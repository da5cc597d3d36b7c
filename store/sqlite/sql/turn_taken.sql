-- A turn that lies in the future is from a clock that was set back since.
select count(*) as n from turns where duty = ?1 and taken_at > ?2 - ?3 and taken_at <= ?2 + 2000000
