-- Longer than publishing may take. A process that is frozen meanwhile lets its rows go after it.
set local idle_in_transaction_session_timeout = '11s'
