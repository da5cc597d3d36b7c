-- The ID of the server process, and the client's port as the server sees it. The port of a Unix socket is 0.
select pg_backend_pid() as session, coalesce(inet_client_port(), 0) as port
