select {{columns}}, t.payload from holdfast.tasks t where t.id = $1
