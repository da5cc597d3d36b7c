package postgres

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
)

type idRow struct{ ID int64 }

// Fence implements store.Fencing.
func (s *Store) Fence(ctx context.Context, asked time.Time, grace, settle time.Duration) ([]holdfast.RunID, error) {
	var rows []idRow
	err := s.do(ctx, "fence runs", func() error {
		rows = nil
		return s.all(ctx, s.leases, &rows, "fence", micros(grace), micros(settle), asked)
	})
	if err != nil {
		return nil, err
	}
	runs := make([]holdfast.RunID, len(rows))
	for i, row := range rows {
		runs[i] = holdfast.RunID(row.ID)
	}
	return runs, nil
}
