-- Keeps the newest sentinel of the queues ?1. The sentinel that they kept before is a proof, or there is none. ?2 is
-- the slack.
update queues set proved_through = iif(drained_through >= held_at + ?2, held_through, proved_through),
  held_through = drained_through, held_at = drained_at
where name in (select value from json_each(?1))
