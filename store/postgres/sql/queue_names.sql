select name from holdfast.queues order by name collate "C"
