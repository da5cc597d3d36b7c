select name from holdfast.lanes order by name collate "C"
