package postgres

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
)

type idRow struct{ ID int64 }

// Fence implements store.Fencing.
func (s *Store) Fence(ctx context.Context, grace, settle time.Duration) ([]holdfast.RunID, error) {
	var rows []idRow
	err := s.do(ctx, "fence runs", func() error {
		rows = nil
		return s.all(ctx, s.db, &rows, "fence", micros(grace), micros(settle))
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
