-- +goose Up

-- This version changes nothing.

-- +goose Down
