select name from queues order by name
