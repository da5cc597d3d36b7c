-- Statistics that are out of date may say that a range of ids is the whole table. A step joins many
-- tasks with a few lanes or runs, other than the statements that look up one task.
set local enable_seqscan = off;
set local enable_hashjoin = on
