-- Outdated statistics may suggest that a range of ids is the whole table, so sequential scans are off. Hash joins are
-- on, because a step joins many tasks with a few queues or workers. Other statements look up single tasks.
set local enable_seqscan = off;
set local enable_hashjoin = on
