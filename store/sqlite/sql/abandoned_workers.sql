-- The ended workers that may still own tasks.
select id from workers where state <> 'live' and not swept and (?1 = 0 or id = ?1)
