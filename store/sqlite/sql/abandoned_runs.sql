-- Runs that are over and may still own tasks.
select id from runs where state <> 'live' and not swept and (?1 = 0 or id = ?1)
