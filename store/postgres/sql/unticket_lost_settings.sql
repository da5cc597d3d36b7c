-- Dispatchers wait while a step has its lock, or waits for it. So it does neither for long, even if its process is frozen.
set local lock_timeout = '200ms';
set local idle_in_transaction_session_timeout = '2s'
