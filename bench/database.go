package main

import (
	"context"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
)

// execute runs statements on the database, each on its own.
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

// within is the database's URL, for a schema.
func within(schema string) string {
	url := os.Getenv(databaseURL)
	separator := "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	return url + separator + "search_path=" + schema
}
