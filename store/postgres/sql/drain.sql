-- Marks a live worker as draining, and returns the state of the worker.
with updated as (
  update holdfast.workers set draining = true where id = $1 and state = 'live'
)
select state from holdfast.workers where id = $1
