package sqlite

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// OpenRun implements store.Leases.
func (s *Store) OpenRun(ctx context.Context, info store.RunInfo, lease time.Duration) (holdfast.RunID, error) {
	var run holdfast.RunID
	err := s.write(ctx, "open run", func(ctx context.Context, tx *transaction) error {
		lanes := words(info.Lanes)
		if _, err := tx.exec(ctx, "insert_lanes", lanes, tx.now); err != nil {
			return err
		}
		row, err := one[idRow](ctx, tx, "open_run",
			clean(info.Name), clean(info.Host), info.PID, clean(info.Version), info.Concurrency, lanes, tx.now, micros(lease))
		run = holdfast.RunID(row.ID)
		return err
	})
	if err != nil {
		return 0, err
	}
	return run, nil
}
