-- The state the run is in; it is asked to drain if that is live.
with asked as (
  update holdfast.runs set draining = true where id = $1 and state = 'live'
)
select state from holdfast.runs where id = $1
