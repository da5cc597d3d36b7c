-- Deletes at most ?1 cancellations that no live worker will read.
delete from cancellations where id in (
  select c.id from cancellations c where not exists (select 1 from workers w where w.id = c.worker_id and w.state = 'live') limit ?1
)
