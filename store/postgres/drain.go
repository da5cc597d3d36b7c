package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Drain implements store.Leases.
func (s *Store) Drain(ctx context.Context, run holdfast.RunID) error {
	return s.do(ctx, "drain run", func() error {
		row, err := one[struct{ State store.RunState }](ctx, s, s.db, "drain", int64(run))
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return fmt.Errorf("%w: there is no run %s", holdfast.ErrNotFound, run)
		case err != nil:
			return err
		case row.State != store.RunLive:
			return fmt.Errorf("%w: run %s is %s", holdfast.ErrConflict, run, row.State)
		}
		return nil
	})
}
