-- Running tasks are few and have an index.
select {{columns}} from tasks indexed by tasks_run
where tasks.run_id is not null and (?1 = 0 or tasks.run_id = ?1)
  and not exists (select 1 from runs r where r.id = tasks.run_id and r.state = 'live')
order by tasks.id
limit ?2
