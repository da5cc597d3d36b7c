select state, count(*) as tasks, max(id) as last from holdfast.import_tasks where import_id = $1 group by state
