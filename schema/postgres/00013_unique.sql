-- +goose Up

-- The functions as they were, for the way down.
alter function enqueue(text, json, text, interval, text, bigint, text[], text, anycompatible, boolean, text) rename to enqueue_before_unique;
alter function enqueue(text, jsonb, text, interval, text, bigint, text[], text, anycompatible, boolean, text) rename to enqueue_before_unique;
alter function enqueue(text, text, text, interval, text, bigint, text[], text, anycompatible, boolean, text) rename to enqueue_before_unique;

-- As before, and with unique keys that an earlier task loses after a time or when it has ended, as holdfast.NewTask says.
-- +goose StatementBegin
create function enqueue(
  type text, payload json default 'null', queue text default 'default', delay interval default '0', unique_key text default null,
  max_attempts bigint default 0, tags text[] default null, key text default null, priority anycompatible default 'normal'::text,
  ordered boolean default false, topic text default null, unique_for interval default null, unique_while_open boolean default false
) returns bigint
language plpgsql set search_path from current as $$
#variable_conflict use_column
declare
  later timestamptz := case when enqueue.delay > interval '0' then now() + enqueue.delay end;
  mark  smallint; -- of an ordered task
  waits boolean := false;
  check_key boolean := false;
  due   timestamptz; -- null: the task has a ticket
  task  bigint;
  label text;
  bytes integer := octet_length(enqueue.payload::text);
  most  integer := least(coalesce(nullif(current_setting('holdfast.max_payload', true), '')::bigint, 1048576), 67108864);
  why   text; -- the payload of a webhook is not valid
  given text := enqueue.priority::text;
  level text := case when given in ('low', 'normal', 'high', 'critical') then given
    when given ~ '^[0-9]$' then (array['low', 'normal', 'high', 'critical'])[given::int / 3 + 1] end;
  subqueue text := case when level = 'normal' then enqueue.queue else enqueue.queue || '.' || level end;
begin
  if coalesce(enqueue.type, '') !~ '^[A-Za-z0-9._:/-]{1,100}$' then
    raise exception 'task type % must be 1 to 100 letters, digits or . _ : / -', quote_nullable(enqueue.type) using errcode = 'invalid_parameter_value';
  elsif coalesce(enqueue.queue, '') !~ '^[a-z0-9_-]{1,100}$' then
    raise exception 'queue % must be 1 to 100 lower-case letters, digits, _ or -', quote_nullable(enqueue.queue) using errcode = 'invalid_parameter_value';
  elsif level is null then
    raise exception 'priority % must be low, normal, high or critical, or a number from 0 to 9', quote_nullable(given) using errcode = 'invalid_parameter_value';
  elsif enqueue.payload is null then
    raise exception 'the payload is null; for an empty value use the JSON null' using errcode = 'invalid_parameter_value';
  elsif bytes > most then
    raise exception 'the payload has % bytes, the limit is %; keep large data elsewhere and send a reference', bytes, most
      using errcode = 'invalid_parameter_value', hint = 'the limit is 1 MiB; to change it, set holdfast.max_payload, as in: alter database app set holdfast.max_payload = 4194304';
  elsif bytes > 2 * 9990 and json_depth(enqueue.payload) > 9990 then
    raise exception 'the payload has more than 9990 levels of arrays and objects' using errcode = 'invalid_parameter_value';
  elsif coalesce(enqueue.delay < interval '0', true) then
    raise exception 'the delay is negative or null' using errcode = 'invalid_parameter_value';
  elsif later >= timestamptz '10000-01-01 00:00:00+00' then
    raise exception 'the task would become due after the year 9999' using errcode = 'invalid_parameter_value';
  elsif coalesce(enqueue.max_attempts not between 0 and 2147483647, true) then
    raise exception 'max_attempts is null, or not between 0 and 2147483647' using errcode = 'invalid_parameter_value';
  elsif octet_length(enqueue.unique_key) > 255 then
    raise exception 'the unique key has % bytes, the limit is 255', octet_length(enqueue.unique_key) using errcode = 'invalid_parameter_value';
  elsif enqueue.unique_for <= interval '0' then
    raise exception 'unique_for is not positive' using errcode = 'invalid_parameter_value';
  elsif enqueue.unique_while_open is null then
    raise exception 'unique_while_open is null' using errcode = 'invalid_parameter_value';
  elsif coalesce(enqueue.unique_key, '') = '' and (enqueue.unique_for is not null or enqueue.unique_while_open) then
    raise exception 'unique_for and unique_while_open need a unique_key' using errcode = 'invalid_parameter_value';
  elsif octet_length(enqueue.key) > 255 or enqueue.key ~ '[\u0001-\u001f\u007f-\u009f]' then
    raise exception 'the key % must be at most 255 bytes of text without control characters', quote_nullable(enqueue.key) using errcode = 'invalid_parameter_value';
  elsif enqueue.ordered is null or enqueue.ordered and coalesce(enqueue.key, '') = '' then
    raise exception 'an ordered task needs a key, and ordered must not be null' using errcode = 'invalid_parameter_value';
  elsif octet_length(enqueue.topic) > 255 or enqueue.topic ~ '[\u0001-\u001f\u007f-\u009f]' then
    raise exception 'the topic % must be at most 255 bytes of text without control characters', quote_nullable(enqueue.topic) using errcode = 'invalid_parameter_value';
  elsif array_ndims(enqueue.tags) > 1 then
    raise exception 'the tags are an array of arrays' using errcode = 'invalid_parameter_value';
  elsif cardinality(enqueue.tags) > 16 then
    raise exception 'the task has % tags, the limit is 16', cardinality(enqueue.tags) using errcode = 'invalid_parameter_value';
  end if;
  if enqueue.type = 'http' then
    why := http_problem(enqueue.payload);
    if why is not null then
      raise exception 'invalid payload for type http: %', why using errcode = 'invalid_parameter_value';
    end if;
  end if;
  foreach label in array coalesce(enqueue.tags, '{}') loop
    -- Control characters, spaces, invisible characters, those for private use, and , " ' ` \
    if coalesce(octet_length(label) not between 1 and 64
      or label ~ '[\u0001-\u0020,"''`\\\u007f-\u00a0\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ue000-\uf8ff\ufeff\ufff0-\ufffb\ufffe-\uffff\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000f0000-\U0010ffff]',
      true) then
      raise exception 'the tag % must be 1 to 64 bytes of printable characters without spaces, commas, quotes and backslashes', quote_nullable(label) using errcode = 'invalid_parameter_value';
    elsif cardinality(array_positions(enqueue.tags, label)) > 1 then
      raise exception 'the tag % appears twice', label using errcode = 'invalid_parameter_value';
    end if;
  end loop;
  insert into queues (name)
  select subqueue where not exists (select from queues q where q.name = subqueue)
  on conflict do nothing;
  if enqueue.ordered then -- locks the key, and then takes an id
    insert into key_order as o (key) values (enqueue.key)
    on conflict (key) do update set key = excluded.key
    returning case when o.dead = 2 and coalesce((select t.state = 'dead' from tasks t where t.id = o.active), false) then 2 else 1 end,
      o.active is null or o.dead > 0, o.active is not null or exists (select from key_waits w where w.key = o.key) into mark, check_key, waits;
    waits := waits and mark = 1;
  end if;
  due := case when waits or later is null and mark is null and enqueue.topic <> '' then timestamptz '9999-01-01 00:00:00+00'
    when later is null and enqueue.topic <> '' then now() else later end;
  perform pg_current_xact_id(); -- the cursors of topics need a transaction id that is older than the id of the task
  if enqueue.unique_for is not null or enqueue.unique_while_open then
    update tasks t set unique_key = null
    where t.unique_key = enqueue.unique_key
      and (t.created_at <= now() - enqueue.unique_for or enqueue.unique_while_open and t.state in ('done', 'dead', 'cancelled', 'archived'));
  end if;
  loop
    insert into tasks (type, queue, payload, max_attempts, unique_key, tags, key, next_run_at, due_at, ticketed_at, ordered, topic)
    values (enqueue.type, subqueue, enqueue.payload, enqueue.max_attempts, nullif(enqueue.unique_key, ''),
      case when cardinality(enqueue.tags) > 0 then to_json(enqueue.tags) end, nullif(enqueue.key, ''), coalesce(later, now()),
      due, case when due is null then now() end, mark, nullif(enqueue.topic, ''))
    on conflict (unique_key) where unique_key is not null do nothing
    returning id into task;
    exit when task is not null;
    select t.id into task from tasks t where t.unique_key = enqueue.unique_key;
    if task is not null then
      insert into key_checks (key) select enqueue.key where check_key; -- the row of the key may be new
      return task;
    end if; -- else the task with that key has been deleted meanwhile
  end loop;
  insert into tags (tag, task_id) select unnest(enqueue.tags), task;
  insert into keys (key, task_id) select enqueue.key, task where enqueue.key <> '';
  insert into count_deltas (queue, type, state, block, n) values (subqueue, enqueue.type, 'all', task / 100000, 1);
  if waits then
    insert into key_waits (key, task_id) values (enqueue.key, task);
    insert into key_checks (key) select enqueue.key where check_key;
  elsif mark = 1 then
    update key_order o set active = task where o.key = enqueue.key;
  end if;
  if enqueue.topic <> '' then
    insert into topic_tasks (task_id, queue, topic, phase)
    values (task, subqueue, enqueue.topic, case when later is null and mark is null then 0 else 3 end);
    insert into topic_arrivals (queue, topic) select subqueue, enqueue.topic where later is null and mark is null;
  end if;
  if due is null then
    insert into outbox (queue, task_ids, publish_after) values (subqueue, array[task], now());
  end if;
  return task;
end
$$;
-- +goose StatementEnd

-- Functions for other types of a payload. For a constant without a type PostgreSQL takes the one with text. They need a
-- payload, so that a call without one has a single meaning.
-- +goose StatementBegin
create function enqueue(
  type text, payload jsonb, queue text default 'default', delay interval default '0', unique_key text default null,
  max_attempts bigint default 0, tags text[] default null, key text default null, priority anycompatible default 'normal'::text,
  ordered boolean default false, topic text default null, unique_for interval default null, unique_while_open boolean default false
) returns bigint
language sql set search_path from current as $$
  select enqueue(enqueue.type, enqueue.payload::text::json, enqueue.queue, enqueue.delay, enqueue.unique_key, enqueue.max_attempts, enqueue.tags, enqueue.key,
    enqueue.priority, enqueue.ordered, enqueue.topic, enqueue.unique_for, enqueue.unique_while_open)
$$;
-- +goose StatementEnd
-- +goose StatementBegin
create function enqueue(
  type text, payload text, queue text default 'default', delay interval default '0', unique_key text default null,
  max_attempts bigint default 0, tags text[] default null, key text default null, priority anycompatible default 'normal'::text,
  ordered boolean default false, topic text default null, unique_for interval default null, unique_while_open boolean default false
) returns bigint
language sql set search_path from current as $$
  select enqueue(enqueue.type, enqueue.payload::text::json, enqueue.queue, enqueue.delay, enqueue.unique_key, enqueue.max_attempts, enqueue.tags, enqueue.key,
    enqueue.priority, enqueue.ordered, enqueue.topic, enqueue.unique_for, enqueue.unique_while_open)
$$;
-- +goose StatementEnd

-- +goose Down
drop function enqueue(text, text, text, interval, text, bigint, text[], text, anycompatible, boolean, text, interval, boolean);
drop function enqueue(text, jsonb, text, interval, text, bigint, text[], text, anycompatible, boolean, text, interval, boolean);
drop function enqueue(text, json, text, interval, text, bigint, text[], text, anycompatible, boolean, text, interval, boolean);
alter function enqueue_before_unique(text, json, text, interval, text, bigint, text[], text, anycompatible, boolean, text) rename to enqueue;
alter function enqueue_before_unique(text, jsonb, text, interval, text, bigint, text[], text, anycompatible, boolean, text) rename to enqueue;
alter function enqueue_before_unique(text, text, text, interval, text, bigint, text[], text, anycompatible, boolean, text) rename to enqueue;
