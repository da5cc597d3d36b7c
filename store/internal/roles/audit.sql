-- name: tag
-- Adds tags to tasks. $1 is a JSON array.
insert into holdfast.tags (tag, task_id)
select tag, task from {{rows(e, $1::json, task bigint, tag text)}} where true
on conflict do nothing

-- name: audit_record
-- Adds audit entries. $1 is a JSON array. Its documents are text, so that the database keeps their form.
insert into holdfast.audit (at, actor, surface, reason, action, task_id, operation_id, subject, before, after)
select {{now}}, actor, surface, reason, action, nullif(task, 0), nullif(operation, 0), subject,
  before::json, after::json
from {{rows(e, $1::json,
  actor text, surface text, reason text, action text, task bigint, operation bigint, subject text,
  before text, after text
)}}

-- name: audit_log
-- $1 is a task, $2 an operation, $3 an actor, $4 an action and $9 a subject. Entries are from the time $5 to $6, with
-- ids below $7. $8 is the limit. If $10 is not 0, the changes of tasks that operations made are left out.
select id, at, actor, surface, reason, action, coalesce(task_id, 0) as task, coalesce(operation_id, 0) as operation,
  subject, coalesce(before::text, '') as before, coalesce(after::text, '') as after
from holdfast.audit {{audit_entries}}
  ($2::bigint = 0 or operation_id = $2)
  and ($3 = '' or actor = $3)
  and ($4 = '' or action = $4)
  and ($5::bigint = 0 or at >= {{at($5::bigint)}})
  and ($6::bigint = 0 or at < {{at($6::bigint)}})
  and ($7::bigint = 0 or id < $7)
  and ($10::bigint = 0 or operation_id is null or task_id is null)
order by id desc
limit $8
