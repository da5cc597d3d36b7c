-- Dispatchers wait while a step has its lock, or waits for it. So it does neither for long, even if its process is
-- frozen. Each statement of a step must see what was committed before it, whatever the level of the session. Otherwise
-- the lock orders nothing.
set transaction isolation level read committed;
set local lock_timeout = '200ms';
set local idle_in_transaction_session_timeout = '2s'
