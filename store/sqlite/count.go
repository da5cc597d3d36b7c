package sqlite

import (
	"context"
	"slices"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Count implements store.Desk. Counting everything, or by states alone, reads indexes and no tasks.
func (s *Store) Count(ctx context.Context, f store.Filter) (map[holdfast.State]int64, error) {
	name, args := statementFor("count", f), filterArgs(f)
	if f.Type == "" && f.Lane == "" && f.Error == "" && f.Before == 0 {
		name, args = "count_all", nil
	}
	rows, err := list[struct {
		State holdfast.State
		Count int64
	}](ctx, s, "count tasks", name, args...)
	if err != nil {
		return nil, err
	}
	counts := make(map[holdfast.State]int64)
	for _, state := range holdfast.States() {
		counts[state] = 0
	}
	for _, row := range rows {
		if len(f.States) == 0 || slices.Contains(f.States, row.State) {
			counts[row.State] = row.Count
		}
	}
	return counts, nil
}
