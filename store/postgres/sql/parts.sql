-- The parts of other statements.

-- {{columns}}: the columns of a task t without its payload.
t.id, t.type, t.lane, t.state, coalesce(t.unique_key, '') as unique_key,
t.attempt, t.max_attempts, t.failures, t.crashes, t.deferrals, coalesce(t.run_id, 0) as run_id,
t.next_run_at, t.created_at, t.started_at, t.finished_at,
coalesce(t.last_error, '') as last_error, coalesce(t.parked, '') as parked, coalesce(t.idempotency_key, '') as idempotency_key,
coalesce(t.buffered and t.state = 'running', false) as buffered

-- {{claimable}}: the rule for the tasks t that a claim takes. $4 are the wanted types, and $5 how many crashes each type
-- allows. live is empty if the run that claims is not live.
t.state = 'ready' and t.type = any($4::text[])
  and (t.crashes = 0 or t.crashes <= ($5::bigint[])[array_position($4::text[], t.type)])
  -- Its time has come. A due_at that is later then only postpones the next try to publish.
  and (t.due_at is null or t.due_at <= now() or t.next_run_at <= now())
  and exists (select from live)

-- {{claimed}}: what a claim returns of a task t. Null stands for the usual value, which costs nothing on the way. Times
-- travel in binary form, because their text takes longer to read than all the rest of the row.
t.id, t.type, t.lane, t.unique_key, t.attempt, t.max_attempts, nullif(t.failures, 0), nullif(t.crashes, 0), nullif(t.deferrals, 0),
timestamptz_send(t.created_at), timestamptz_send(nullif(t.next_run_at, t.created_at)), timestamptz_send(t.started_at),
t.last_error, t.idempotency_key, t.payload

-- {{history}}: the WAL's timeline, a new one with every promotion and none with a restart. Where commits are answered before
-- they are on the disk, a restart may lose some too.
substring(pg_walfile_name(pg_current_wal_lsn()) for 8)
  || case when current_setting('synchronous_commit') = 'off' then '/' || extract(epoch from pg_postmaster_start_time()) else '' end

-- {{no_history}}: for a server that does not tell its timeline.
''

-- {{signs_held}}: the runs whose signs are held in this schema, as numbers of advisory locks. Two numbers make the key of a
-- run's sign (objsubid 2), one makes that of the session that carries its renewals (objsubid 1).
select l.objid
from pg_locks l, holdfast.meta m
where m.key = 'incarnation' and l.locktype = 'advisory' and l.granted
  and l.database = (select oid from pg_database where datname = current_database())
  and l.classid = hashtext(m.value)::oid and l.objsubid in (1, 2)

-- {{filter}}: what list and count choose: states, type, lane, part of the last error, ids below one, and from
-- when to when a task ended, or was created if it has not ended. Dead letters have an index; the others are found from the
-- newest task down.
(cardinality($1::text[]) = 0 or t.state = any($1::text[]))
  and ($1::text[] <> '{dead}' or t.dead_at is not null)
  and ($2 = '' or t.type = $2)
  and ($3 = '' or t.lane = $3)
  and ($4 = '' or position(lower($4) in lower(t.last_error)) > 0)
  and ($5::bigint = 0 or t.id < $5)
  and ($6::bigint = 0 or coalesce(t.finished_at, t.created_at) >= timestamptz 'epoch' + $6::bigint * interval '1 microsecond')
  and ($7::bigint = 0 or coalesce(t.finished_at, t.created_at) < timestamptz 'epoch' + $7::bigint * interval '1 microsecond')
