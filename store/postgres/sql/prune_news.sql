-- What nobody will ask for any more.
delete from holdfast.cancellations c
where not exists (select from holdfast.runs r where r.id = c.run_id and r.state = 'live')
