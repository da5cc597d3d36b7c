-- Whoever may not see the state of the replicas sees none.
select pg_is_in_recovery() as standby,
  (select count(*) from pg_stat_replication where sync_state = any($1::text[])) as following,
  (select count(*) from pg_stat_replication where sync_state = any($2::text[])) as waited_for
