-- A user without the right to see the state of the replicas gets counts of 0.
select pg_is_in_recovery() as standby,
  (select count(*) from pg_stat_replication where sync_state = any($1::text[])) as following,
  (select count(*) from pg_stat_replication where sync_state = any($2::text[])) as waited_for
