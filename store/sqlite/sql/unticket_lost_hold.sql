-- ?1 lists the lanes whose held sentinel is a proof, or that hold none. ?2 is the slack.
update lanes set proved_through = iif(drained_through >= held_at + ?2, held_through, proved_through),
  held_through = drained_through, held_at = drained_at
where name in (select value from json_each(?1))
