package postgres

import (
	"context"

	"github.com/holdfastq/holdfast/store/internal/roles"
)

// counters is the role store.Counters.
type counters struct {
	*database
	roles.Counters
}

// FoldCounts implements store.Counters.
func (s *counters) FoldCounts(ctx context.Context, limit int) (int, error) {
	rows, err := list[struct{ N int }](ctx, s, "fold counts", "counts_fold", limit)
	if err != nil {
		return 0, err
	}
	return rows[0].N, nil
}
