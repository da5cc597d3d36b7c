update holdfast.imports set through = $2 where id = $1
