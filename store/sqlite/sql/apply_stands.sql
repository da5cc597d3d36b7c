-- Whether the task t stands where the judge saw it: ?1 is the task, ?2 the attempt, ?3 the run or 0,
-- ?4 the states as ",ready,running,".
t.id = ?1 and t.attempt = ?2 and coalesce(t.run_id, 0) = ?3 and instr(?4, ',' || t.state || ',') > 0
