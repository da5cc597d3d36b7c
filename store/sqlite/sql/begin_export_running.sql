select count(*) as n from tasks where run_id is not null
