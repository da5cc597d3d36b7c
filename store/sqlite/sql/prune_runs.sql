-- Only runs that are known to own nothing.
select id from runs where state <> 'live' and swept and ended_at < ?1 order by id limit ?2
