-- name: data_save
-- Stores the values $4, a JSON array, for the attempt $2 of the task $1, if it runs on the worker $3. Until this
-- transaction ends, no janitor can take the task back.
insert into holdfast.task_data (task_id, name, attempt, value, at)
select t.id, r.name, $2, r.value::json, {{now}}
from (select id from holdfast.tasks where id = $1 and attempt = $2 and worker_id = $3 and state = 'running' {{lock}}) as t,
  {{rows(r, $4::json, name text, value text)}}
where true
on conflict (task_id, name) do update set attempt = excluded.attempt, value = excluded.value, at = excluded.at

-- name: data_put
-- Stores values of tasks, a JSON array. The same transaction has accepted the results of their attempts, or it imports
-- the tasks. Only an import has times.
insert into holdfast.task_data (task_id, name, attempt, value, at)
select r.task, r.name, r.attempt, r.value::json, coalesce({{at(r.at)}}, {{now}})
from {{rows(r, $1::json, task bigint, name text, attempt int, value text, at bigint)}}
where true
on conflict (task_id, name) do update set attempt = excluded.attempt, value = excluded.value, at = excluded.at

-- name: data
-- The values of the tasks $1 with the names $2, or all if there are no names.
select task_id as task, name, attempt, value::text as value, at from holdfast.task_data
where task_id {{in($1::bigint[])}} and ({{none($2::text[])}} or name {{in($2::text[])}})
order by task_id, name
