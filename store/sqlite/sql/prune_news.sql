-- At most ?1 news that no run will ask for any more.
delete from cancellations where id in (
  select c.id from cancellations c where not exists (select 1 from runs r where r.id = c.run_id and r.state = 'live') limit ?1
)
