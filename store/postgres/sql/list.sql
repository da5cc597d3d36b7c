select {{columns}}
from holdfast.tasks t
where {{filter}}
order by t.id desc
limit $8
