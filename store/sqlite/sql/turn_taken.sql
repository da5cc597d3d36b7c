-- A turn that lies in the future is from a clock that went wrong.
select count(*) as n from turns where duty = ?1 and taken_at > ?2 - ?3 and taken_at <= ?2 + ?3 + 60000000
