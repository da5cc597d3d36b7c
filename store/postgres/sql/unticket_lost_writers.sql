-- The transactions that may have taken an id and not committed it. An insert locks the table before it takes an id,
-- until its transaction ends. Other writers hold the same lock. A snapshot does not show all of these transactions,
-- because a transaction may take an id before it has a transaction ID.
select virtualtransaction from pg_locks
where locktype = 'relation' and relation = 'holdfast.tasks'::regclass and mode = 'RowExclusiveLock' and granted
  and database = (select oid from pg_database where datname = current_database())
