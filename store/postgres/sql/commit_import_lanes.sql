insert into holdfast.lanes (name)
select distinct lane from holdfast.import_tasks where import_id = $1
order by lane
on conflict do nothing
