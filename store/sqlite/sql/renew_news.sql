-- They are gone only if the transaction is stored, and then the answer is not lost any more.
delete from cancellations where run_id = ?1 returning id, task_id as task, attempt
