package main

import (
	"context"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// execute runs the statements on the database, each in its own transaction.
func execute(ctx context.Context, statements ...string) error {
	conn, err := pgx.Connect(ctx, os.Getenv(databaseURL))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, s := range statements {
		if _, err := conn.Exec(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// databaseConnections is how many connections a system may use, unless its settings name another number. The default of
// the client depends on the number of cores and is 4 on a small machine.
const databaseConnections = 20

// pool returns a pool of connections whose search_path is the schema.
func pool(ctx context.Context, schema string, connections int32) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(schemaURL(schema))
	if err != nil {
		return nil, err
	}
	config.MaxConns = connections
	return pgxpool.NewWithConfig(ctx, config)
}

// schemaURL returns the URL of the database with the schema as the search_path.
func schemaURL(schema string) string {
	url := os.Getenv(databaseURL)
	separator := "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	return url + separator + "search_path=" + schema
}
