-- There are few running tasks, and they have an index.
select {{columns}} from tasks indexed by tasks_worker
where tasks.worker_id is not null and (?1 = 0 or tasks.worker_id = ?1)
  and not exists (select 1 from workers w where w.id = tasks.worker_id and w.state = 'live')
order by tasks.id
limit ?2
