-- name: presence_take
select pg_try_advisory_lock(hashtext(value), $1::int) as held from holdfast.meta where key = 'incarnation'

-- name: presence_wait
-- Waits for a presence lock. The second number of its key is in the session's setting presence.key, because DO takes no
-- parameters. After lock_timeout it returns without an error, because the server would log each error.
do $wait$
begin
  perform pg_advisory_lock(hashtext(value), current_setting('presence.key')::int) from holdfast.meta where key = 'incarnation';
exception when lock_not_available then null;
end
$wait$

-- name: presence_settings
-- Disables the time limits $1 of the session. It skips limits that this version of the server does not know.
select set_config(name, '0', false) as name from pg_settings where name = any($1::text[])

-- name: missing
-- The live workers that said they are present, and whose presence lock no session holds. The statement reads the locks
-- after the workers, once, and only if there is a present worker. While it reads them, the lock tables of the server
-- are blocked.
with present as materialized (
  select id, renewed_at from holdfast.workers where state = 'live' and present
), held as materialized (
  {{presence_held}} and exists (select from present)
)
select id as worker, renewed_at from present
where (id & 4294967295)::oid not in (select objid from held)
order by id

-- name: neighbors
select id as worker, renewed_at, pid, process_started as started
from holdfast.workers
where state = 'live' and present and boot_id = $1 and pid_namespace = $2 and process_started is not null
order by id

-- name: fence_missing
-- Like fence, for one worker that must still be missing. It must not have renewed since the caller found it missing.
with missing as (
  select id from holdfast.workers
  where id = $1 and state = 'live' and present and renewed_at = $2::timestamptz
    and now() - pg_postmaster_start_time() >= $3 * interval '1 microsecond'
    and now() - $4::timestamptz < interval '2 seconds'
  for update skip locked
)
update holdfast.workers w set state = 'dead', ended_at = now()
from missing
where w.id = missing.id and (missing.id & 4294967295)::oid not in ({{presence_held}})
returning w.id
