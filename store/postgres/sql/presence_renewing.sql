-- Acquires the lock of a session for the renewals of worker $1. The lock is shared, because a process may open a
-- session before the server detects the end of the previous one.
select pg_advisory_lock_shared((hashtext(value)::bigint << 32) | ($1::bigint & 4294967295)) is not null as held
from holdfast.meta where key = 'incarnation'
