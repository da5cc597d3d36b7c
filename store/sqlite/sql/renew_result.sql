-- If the commit fails, the rows stay and a later renewal returns them. After the commit, the answer cannot be lost.
delete from cancellations where worker_id = ?1 returning id, task_id as task, attempt
