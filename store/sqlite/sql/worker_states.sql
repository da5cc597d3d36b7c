select id, state, settled from workers where id in (select value from json_each(?1))
