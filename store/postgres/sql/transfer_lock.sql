-- An insert holds a lock that conflicts with this one, from before it takes an id until it commits. So the tasks and
-- the sequence do not change while this lock is held. Inserts wait while this statement waits, so lock_timeout limits
-- the wait. tcp_user_timeout is off, because a slow reader of an export must not end the connection.
set local lock_timeout = '10s';
set local tcp_user_timeout = 0;
lock table holdfast.tasks in share row exclusive mode
