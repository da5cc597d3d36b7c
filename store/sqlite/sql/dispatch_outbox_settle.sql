-- Deletes the published outbox entries ?1, and postpones the refused entries ?2. The tickets of the tasks ?3 were
-- published much later than ticketed_at says. A sentinel that was sent in between must not prove these tickets lost, so
-- the statement updates ticketed_at. ?4 is now.
delete from outbox where id in (select value from json_each(?1));

update outbox set publish_after = ?4 + 3000000 where id in (select value from json_each(?2));

update tasks set ticketed_at = ?4
where id in (select value from json_each(?3)) and attempt = 1 and ticketed_at is not null
