delete from holdfast.import_tasks where import_id = $1
