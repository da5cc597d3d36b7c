package postgres

import (
	"context"

	"github.com/lib/pq"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

const defaultLimit = 50

// List implements store.Desk.
func (s *Store) List(ctx context.Context, f store.Filter) ([]holdfast.Task, error) {
	limit := f.Limit
	if limit <= 0 {
		limit = defaultLimit
	}
	var rows []taskRow
	err := s.do(ctx, "list tasks", func() error {
		rows = nil
		return s.all(ctx, s.db, &rows, "list", append(filterArgs(f), limit)...)
	})
	return tasksOf(rows), err
}

// filterArgs are the first five parameters of sql/list.sql and sql/count.sql.
func filterArgs(f store.Filter) []any {
	states := make(pq.StringArray, len(f.States))
	for i, state := range f.States {
		states[i] = string(state)
	}
	return []any{states, f.Type, f.Lane, clean(f.Error), int64(f.Before)}
}
