-- What nobody will ask for any more.
select c.id from cancellations c where not exists (select 1 from runs r where r.id = c.run_id and r.state = 'live') limit ?1
