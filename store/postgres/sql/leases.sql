-- name: renew
-- renewed and before are the times of this renewal and of the previous one. $6 has the cancellations that the worker
-- has received. The statement deletes them and returns the others, even if an earlier renewal has already returned
-- them.
with before as (
  select renewed_at from holdfast.workers where id = $1
), renewed as (
  update holdfast.workers
  set renewed_at = now(), lease_until = now() + $2 * interval '1 microsecond',
      taken = greatest(taken, $3), settled = greatest(settled, $4), running = $5, present = $7, report = nullif($8, '')::json, tasks = $9,
      settings = coalesce(nullif($10, '')::json, settings)
  where id = $1 and state = 'live'
  returning draining, renewed_at
), deleted as (
  delete from holdfast.cancellations where worker_id = $1 and id = any($6::bigint[])
), notices as (
  select id, task_id, attempt from holdfast.cancellations where worker_id = $1 and id <> all($6::bigint[])
)
select draining, {{history}} as history, (extract(epoch from renewed_at) * 1000000)::bigint as renewed,
  (select (extract(epoch from renewed_at) * 1000000)::bigint from before) as before,
  array(select name from holdfast.queues order by name collate "C") as queues,
  array(select id from notices order by id) as news,
  array(select task_id from notices order by id) as tasks,
  array(select attempt from notices order by id) as attempts,
  array(
    select g.queue from holdfast.gates g where {{pauses_queue}} order by g.queue collate "C"
  ) as paused
from renewed

-- name: register_worker
-- $12 is a JSON array of types. They are sorted, so that two workers that register at the same time cannot deadlock.
-- The lock on the epoch of the gates waits for a change of the gates, so that the worker gets the new epoch.
with gates as materialized (
  select epoch from holdfast.gate_epoch for share
), registered as (
  insert into holdfast.workers (id, name, host, pid, version, concurrency, queues, lease_until, boot_id, pid_namespace, process_started, types, gate_epoch)
  values (nextval('holdfast.workers_id_seq') * 1000000 + floor(random() * 1000000)::bigint,
    $1, $2, $3, $4, $5, $6::text[], now() + $7 * interval '1 microsecond', nullif($8, ''), nullif($9, ''), nullif($10, 0), $11::text[],
    (select epoch from gates))
  returning id
), described as (
  insert into holdfast.type_schemas (type, schema, worker_id)
  select d.type, d.schema, r.id from registered r, json_to_recordset($12::json) as d (type text, schema text) order by d.type
  on conflict (type) do update set schema = excluded.schema, worker_id = excluded.worker_id, updated_at = now()
  where type_schemas.schema is distinct from excluded.schema
)
select id from registered

-- name: note_setback
insert into holdfast.meta (key, value) values ('setback', now()::text)
on conflict (key) do update set value = excluded.value

-- name: presence_renewing
-- Acquires the lock of a session for the renewals of worker $1. The lock is shared, because a process may open a
-- session before the server detects the end of the previous one.
select pg_advisory_lock_shared((hashtext(value)::bigint << 32) | ($1::bigint & 4294967295)) is not null as held
from holdfast.meta where key = 'incarnation'

-- name: deregister_worker
-- The lock waits for claims in progress. Otherwise a claim could commit after the worker has ended and a janitor has
-- searched its tasks. No janitor would find the claimed task.
with live as materialized (
  select id from holdfast.workers where id = $1 and state = 'live' for update
), closed as (
  update holdfast.workers w set state = 'stopped', ended_at = now(), running = 0, swept = $2
  from live
  where w.id = live.id
)
delete from holdfast.cancellations where worker_id = $1

-- name: handlers
select distinct t.type, coalesce(q.queue, '') as queue
from holdfast.workers w cross join lateral unnest(w.types) as t (type) left join lateral unnest(w.queues) as q (queue) on true
where w.state = 'live' and not w.draining

-- name: drain
-- Marks a live worker as draining, and returns the state of the worker.
with updated as (
  update holdfast.workers set draining = true where id = $1 and state = 'live'
)
select state from holdfast.workers where id = $1
