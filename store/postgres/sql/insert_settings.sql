-- How long an insert waits for a unique key that another open transaction holds.
set local lock_timeout = '500ms'
