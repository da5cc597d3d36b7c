-- Whoever inserts a task holds a lock that this one waits for, from before it draws an id until it
-- commits: meanwhile the tasks and the sequence stand still. Everybody who wants to insert waits
-- behind this, so it must not wait for long itself.
set local lock_timeout = '2s';
lock table holdfast.tasks in share row exclusive mode
