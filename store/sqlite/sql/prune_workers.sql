-- Deletes at most ?2 workers. Only workers that certainly own no tasks are deleted.
delete from workers where id in (
  select id from workers where state <> 'live' and swept and ended_at < ?1 order by id limit ?2
)
