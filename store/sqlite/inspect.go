package sqlite

import (
	"context"
	"slices"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/scan"
)

// inspector is the role store.Desk.
type inspector struct{ *database }

// Task implements store.Desk.
func (s *inspector) Task(ctx context.Context, id holdfast.TaskID) (holdfast.Task, error) {
	var row scan.Whole
	err := s.read(ctx, "read task", func(ctx context.Context, c *session) error {
		var err error
		row, err = one[scan.Whole](ctx, c, "task", int64(id))
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
	rows, err := list[scan.Task](ctx, s, "list tasks", statementFor("list", f), append(filterArgs(f), limit)...)
	if err != nil {
		return nil, err
	}
	return scan.Tasks(rows), nil
}

// statementFor names the statement that finds the tasks soonest.
func statementFor(operation string, f store.Filter) string {
	if len(f.States) == 1 {
		switch f.States[0] {
		case holdfast.Dead:
			return operation + "_dead"
		case holdfast.Running:
			return operation + "_running"
		}
	}
	return operation
}

// filterArgs are the parameters of sql/filter.sql.
func filterArgs(f store.Filter) []any {
	return []any{words(f.States), f.Type, f.Lane, clean(f.Error), int64(f.Before)}
}

// Count implements store.Desk. Counting everything, or by states alone, reads indexes and no tasks.
func (s *inspector) Count(ctx context.Context, f store.Filter) (map[holdfast.State]int64, error) {
	name, args := statementFor("count", f), filterArgs(f)
	if f.Type == "" && f.Lane == "" && f.Error == "" && f.Before == 0 {
		name, args = "count_all", nil
	}
	rows, err := list[scan.Count](ctx, s, "count tasks", name, args...)
	if err != nil {
		return nil, err
	}
	return scan.Counts(slices.DeleteFunc(rows, func(row scan.Count) bool {
		return len(f.States) > 0 && !slices.Contains(f.States, row.State)
	})), nil
}

// Attempts implements store.Desk.
func (s *inspector) Attempts(ctx context.Context, id holdfast.TaskID) ([]holdfast.Attempt, error) {
	const operation = "read attempts"
	rows, err := list[scan.Attempt](ctx, s, operation, "attempts", int64(id))
	if err != nil {
		return nil, err
	}
	attempts, err := scan.Attempts(rows, id)
	return attempts, s.translate(ctx, operation, err)
}

// Lanes implements store.Desk.
func (s *inspector) Lanes(ctx context.Context) ([]store.Lane, error) {
	rows, err := list[scan.Lane](ctx, s, "describe lanes", "lanes", s.now().UnixMicro())
	if err != nil {
		return nil, err
	}
	return scan.Lanes(rows), nil
}
