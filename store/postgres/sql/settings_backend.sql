select pg_backend_pid() as n
