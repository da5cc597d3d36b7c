package postgres

import (
	"context"
	"database/sql"
	"errors"

	"github.com/holdfastq/holdfast/schema"
	"github.com/holdfastq/holdfast/store/postgres/pgclient"
)

// migrator is the role store.Migrations.
type migrator struct {
	*database
	*migrations
}

type migrations = pgclient.Migrator

// Incarnation implements store.Migrations.
func (s *migrator) Incarnation(ctx context.Context) (string, error) {
	var row struct{ Value string }
	err := s.do(ctx, "read the incarnation", func() error {
		var err error
		row, err = one[struct{ Value string }](ctx, s, s.db, "incarnation")
		if errors.Is(err, sql.ErrNoRows) {
			err = schema.Outdated("the incarnation is missing")
		}
		return err
	})
	return row.Value, err
}
