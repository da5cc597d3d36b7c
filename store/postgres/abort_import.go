package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/holdfastq/holdfast"
)

// AbortImport implements store.Importer.
func (s *Store) AbortImport(ctx context.Context, transfer string) error {
	return s.do(ctx, "abort an import", func() error {
		return s.patiently(ctx, func(tx *sqlx.Tx) error {
			row, err := s.lockImport(ctx, tx, transfer)
			switch {
			case errors.Is(err, holdfast.ErrNotFound):
				return nil
			case err != nil:
				return err
			case row.CommittedAt.Valid:
				return fmt.Errorf("%w: the tasks of %s have been tasks of schema %q since %s", holdfast.ErrConflict,
					row.Origin, s.schema, row.CommittedAt.Time.UTC().Format(time.RFC3339))
			}
			_, err = s.exec(ctx, tx, "abort_import", row.ID)
			return err
		})
	})
}
