-- Transactions that may have taken an id and not committed it: an insert locks the table before it takes one, and until its
-- transaction ends. Other writers do so too. A snapshot would not tell: a transaction may take an id before it is numbered.
select virtualtransaction from pg_locks
where locktype = 'relation' and relation = 'holdfast.tasks'::regclass and mode = 'RowExclusiveLock' and granted
  and database = (select oid from pg_database where datname = current_database())
