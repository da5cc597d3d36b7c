-- ?1 lists the receipts that were published, ?2 those that were refused, ?3 the tasks whose tickets went out much later
-- than the rows say: a sentinel sent in between must not prove them lost. ?4 is now.
delete from outbox where id in (select value from json_each(?1));

update outbox set publish_after = ?4 + 3000000 where id in (select value from json_each(?2));

update tasks set ticketed_at = ?4
where id in (select value from json_each(?3)) and attempt = 1 and ticketed_at is not null
