-- At most ?2 runs that are known to own nothing.
delete from runs where id in (
  select id from runs where state <> 'live' and swept and ended_at < ?1 order by id limit ?2
)
