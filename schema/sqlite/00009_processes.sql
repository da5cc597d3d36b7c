-- +goose Up

-- Nothing: one process serves a file, and the lock on it tells at once when that process is gone. The version is here
-- because every version is the same one in every dialect.

-- +goose Down
