package postgres

import (
	"context"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Count implements store.Desk.
func (s *Store) Count(ctx context.Context, f store.Filter) (map[holdfast.State]int64, error) {
	var rows []struct {
		State holdfast.State
		Count int64
	}
	err := s.do(ctx, "count tasks", func() error {
		rows = nil
		return s.all(ctx, s.db, &rows, "count", filterArgs(f)...)
	})
	if err != nil {
		return nil, err
	}
	counts := make(map[holdfast.State]int64)
	for _, state := range holdfast.States() {
		counts[state] = 0
	}
	for _, row := range rows {
		counts[row.State] = row.Count
	}
	return counts, nil
}
