select count(*) as attempts from holdfast.import_attempts where import_id = $1
