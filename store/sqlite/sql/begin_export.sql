insert into exports (one, transfer, origin, target, destination, begun_at) values (1, ?1, ?2, ?3, ?4, ?5)
