package sqlite

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
	return s.write(ctx, "drain run", func(ctx context.Context, tx *transaction) error {
		asked, err := tx.exec(ctx, "drain", int64(run))
		if err != nil || asked > 0 {
			return err
		}
		row, err := one[struct{ State store.RunState }](ctx, tx, "drain_state", int64(run))
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return fmt.Errorf("%w: there is no run %s", holdfast.ErrNotFound, run)
		case err != nil:
			return err
		}
		return fmt.Errorf("%w: run %s is %s", holdfast.ErrConflict, run, row.State)
	})
}
