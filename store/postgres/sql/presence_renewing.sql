-- The sign of a session that carries the renewals of run $1. It is shared, because a process may open such a session
-- before the server notices the end of the last one.
select pg_advisory_lock_shared((hashtext(value)::bigint << 32) | ($1::bigint & 4294967295)) is not null as held
from holdfast.meta where key = 'incarnation'
