-- Whoever inserts a task holds a lock that this one waits for, from before it draws an id until it commits: from here on
-- the tasks and the sequence do not change. Inserts wait behind this lock, so it must not wait for long itself. A reader
-- of an export may be slow, which is no reason to end the connection.
set local lock_timeout = '10s';
set local tcp_user_timeout = 0;
lock table holdfast.tasks in share row exclusive mode
