select pg_try_advisory_lock(hashtext(value), $1::int) as held from holdfast.meta where key = 'incarnation'
