-- Dispatchers wait while a step holds its lock or waits for it. So both times are limited, even if the process of the
-- step is frozen. The isolation level is set because each statement of a step must see everything that was committed
-- before it. Otherwise the lock would not order steps and dispatchers.
set transaction isolation level read committed;
set local lock_timeout = '200ms';
set local idle_in_transaction_session_timeout = '2s'
