-- Changes go to a file beside the database first, so that questions never wait for them.
pragma journal_mode = wal
