select t.state, count(*) as count
from holdfast.tasks t
where {{filter}}
group by t.state
