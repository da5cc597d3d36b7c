package sqlite

import (
	"context"

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
	rows, err := list[taskRow](ctx, s, "list tasks", statementFor("list", f), append(filterArgs(f), limit)...)
	if err != nil {
		return nil, err
	}
	return tasksOf(rows), nil
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

// list answers a question that is one statement.
func list[Row any](ctx context.Context, s *Store, operation, name string, args ...any) ([]Row, error) {
	var rows []Row
	err := s.read(ctx, operation, func(ctx context.Context, c *session) error {
		var err error
		rows, err = all[Row](ctx, c, name, args...)
		return err
	})
	return rows, err
}
