-- ?1 lists the lanes whose proof was used, or that have none.
update lanes set held_through = drained_through, held_at = drained_at
where name in (select value from json_each(?1))
