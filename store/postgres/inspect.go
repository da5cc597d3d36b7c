package postgres

import (
	"context"

	"github.com/lib/pq"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/scan"
)

// inspector is the role store.Desk.
type inspector struct{ *database }

// Task implements store.Desk.
func (s *inspector) Task(ctx context.Context, id holdfast.TaskID) (holdfast.Task, error) {
	var row scan.Whole
	err := s.do(ctx, "read task", func() error {
		var err error
		row, err = one[scan.Whole](ctx, s, s.db, "task", int64(id))
		return scan.NotFound(err, id)
	})
	if err != nil {
		return holdfast.Task{}, err
	}
	return row.Value(), nil
}

const defaultLimit = 50

// List implements store.Desk.
func (s *inspector) List(ctx context.Context, f store.Filter) ([]holdfast.Task, error) {
	limit := f.Limit
	if limit <= 0 {
		limit = defaultLimit
	}
	rows, err := list[scan.Task](ctx, s, "list tasks", "list", append(filterArgs(f), limit)...)
	if err != nil {
		return nil, err
	}
	return scan.Tasks(rows), nil
}

// filterArgs are the first five parameters of sql/list.sql and sql/count.sql.
func filterArgs(f store.Filter) []any {
	states := make(pq.StringArray, len(f.States))
	for i, state := range f.States {
		states[i] = string(state)
	}
	return []any{states, f.Type, f.Lane, clean(f.Error), int64(f.Before)}
}

// Count implements store.Desk.
func (s *inspector) Count(ctx context.Context, f store.Filter) (map[holdfast.State]int64, error) {
	rows, err := list[scan.Count](ctx, s, "count tasks", "count", filterArgs(f)...)
	if err != nil {
		return nil, err
	}
	return scan.Counts(rows), nil
}

// Attempts implements store.Desk.
func (s *inspector) Attempts(ctx context.Context, id holdfast.TaskID) ([]holdfast.Attempt, error) {
	const operation = "read attempts"
	rows, err := list[scan.Attempt](ctx, s, operation, "attempts", int64(id))
	if err != nil {
		return nil, err
	}
	attempts, err := scan.Attempts(rows, id)
	return attempts, translate(ctx, operation, err)
}

// Lanes implements store.Desk.
func (s *inspector) Lanes(ctx context.Context) ([]store.Lane, error) {
	rows, err := list[scan.Lane](ctx, s, "describe lanes", "lanes")
	if err != nil {
		return nil, err
	}
	return scan.Lanes(rows), nil
}
