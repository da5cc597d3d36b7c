-- For {{history}} in renew: the WAL's timeline, a new one with every promotion and none with a restart. Where commits
-- are answered before they are on the disk, a restart may lose some too.
substring(pg_walfile_name(pg_current_wal_lsn()) for 8)
  || case when current_setting('synchronous_commit') = 'off' then '/' || extract(epoch from pg_postmaster_start_time()) else '' end
