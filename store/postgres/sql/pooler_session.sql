-- The server's process of a connection, and the client's port as the server sees it: 0 for a Unix socket.
select pg_backend_pid() as session, coalesce(inet_client_port(), 0) as port
