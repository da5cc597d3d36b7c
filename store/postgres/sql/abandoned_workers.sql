-- The ended workers that may still own tasks.
select id from holdfast.workers where state <> 'live' and not swept and ($1::bigint = 0 or id = $1)
