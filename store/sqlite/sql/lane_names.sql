select name from lanes order by name
