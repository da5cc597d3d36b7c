-- How long a search for the unique keys that other open transactions hold waits for each of them.
set local lock_timeout = '20ms'
