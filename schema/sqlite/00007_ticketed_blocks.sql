-- +goose Up

-- Nothing: an index finds the tasks that are ticketed. The version is here because every version is the same one in
-- every dialect.

-- +goose Down
