-- +goose Up

-- Nothing. One process serves a file, and the operating system frees the lock on the file when that process ends, so presence
-- needs no columns. The version exists because both databases have the same versions.

-- +goose Down
