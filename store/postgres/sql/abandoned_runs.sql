-- Runs that are over and may still own tasks.
select id from holdfast.runs where state <> 'live' and not swept and ($1::bigint = 0 or id = $1)
