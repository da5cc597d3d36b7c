select {{columns}}, t.payload from holdfast.tasks t where t.id = any($1::bigint[])
