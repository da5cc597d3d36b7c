select count(*) as n from (
  select 1 from queues where {{sentinels_due_which}} limit 1
)
