package sqlite

import (
	"context"

	"github.com/holdfastq/holdfast"
)

// CloseRun implements store.Leases.
func (s *Store) CloseRun(ctx context.Context, run holdfast.RunID, clean bool) error {
	return s.write(ctx, "close run", func(ctx context.Context, tx *transaction) error {
		if _, err := tx.exec(ctx, "close_run", int64(run), tx.now, clean); err != nil {
			return err
		}
		_, err := tx.exec(ctx, "close_run_news", int64(run))
		return err
	})
}
