-- name: now
-- Reads the file, to check that it can be read.
select count(*) as n from (select 1 from sqlite_schema limit 1)

-- name: fence_first
-- The time at which the first lease expires. A lease that was renewed after the present time, ?1, must be corrected at
-- once.
select min(iif(renewed_at > ?1 + 2000000, 0, lease_until)) as at from workers where state = 'live' having min(lease_until) is not null

-- name: fence_ahead
-- If the newest renewal of a worker lies in the future, the clock was set back after it. Such a worker gets a whole
-- lease from now, in which a live process renews it.
update workers set renewed_at = ?1, lease_until = ?1 + (lease_until - renewed_at) where state = 'live' and renewed_at > ?1 + 2000000

-- name: fence
update workers set state = 'dead', ended_at = ?1 where state = 'live' and lease_until < ?1 - ?2 returning id

-- name: abandoned_workers
-- The ended workers that may still own tasks.
select id from workers where state <> 'live' and not swept and (?1 = 0 or id = ?1)

-- name: abandoned
-- There are few running tasks, and they have an index.
select {{columns}} from tasks indexed by tasks_worker
where tasks.worker_id is not null and (?1 = 0 or tasks.worker_id = ?1)
  and not exists (select 1 from workers w where w.id = tasks.worker_id and w.state = 'live')
order by tasks.id
limit ?2

-- name: abandoned_swept
-- These workers have ended and own no tasks, so they will never own one.
update workers set swept = 1 where id in (select value from json_each(?1)) and state <> 'live'
