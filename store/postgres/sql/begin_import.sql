insert into holdfast.imports (source, transfer, origin, shift) values ($1, $2, $3, $4)
