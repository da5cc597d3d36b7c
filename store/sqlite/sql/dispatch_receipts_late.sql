-- Their tickets went out much later than the rows say. A sentinel sent in between must not prove them lost.
update tasks set ticketed_at = ?2
where id in (select value from json_each(?1)) and attempt = 1 and ticketed_at is not null
