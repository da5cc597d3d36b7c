-- With write-ahead logging, statements that read never wait for a transaction that writes.
pragma journal_mode = wal
